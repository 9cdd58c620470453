"""Hostile problems in any number, each judged by a referee that shares no code with the package.

    python -m tests.torture --problems 3000 --seed 0 --out benchmarks/results/torture.jsonl
    python -m tests.torture --summary --out benchmarks/results/torture.jsonl
    python -m tests.torture --seed 0 --only 17        # one problem, in full

Problem ``k`` of a seed is always the same; three of ten are those of earlier editions changed by a pair of options,
which ``--unpaired`` leaves out. A run that is started again skips the problems that its file holds. A line
of the file is one problem: what it is, all that the package claimed, the exact risks in long doubles, the least risk
that was found (package, CVXPY, descent from several starts), and the verdicts:

    false_lower       a lower bound above the best known risk by more than 1e-9 relative plus the stated allowance
    false_upper       a stated risk that is not the risk of that model, by more than the same allowances
    false_optimal     OPTIMAL with a certified gap above the tolerance
    false_unbounded   UNBOUNDED where a larger multiple of the model is no better, or a minimum is attained
    unjudged          the referee itself failed
    exception         any but a documented refusal (those are "refused")
    timeout, slow     a call cut off after --limit seconds; more than 10 s of processor time where n m <= 1e5
    converged, not_converged, unbounded, near_best (within 1e-6 of the best known), loose_bound (near, not converged)
    withheld          UNCERTIFIED: rounding decides the optimum, and the solution says so

``--store`` keeps the counts of a run in ``benchmarks/results/torture.json``, from which ``render_torture.py`` makes the
table in the documentation.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.fingerprint import fingerprint

from .cases import FAMILIES, command, draw_case
from .report import append, print_record, print_summary, store_counts, stored
from .trial import QUICK, Limits, blank, run_trial

# A worker that has not answered after so many calls at their limit is stuck inside compiled code.
_PATIENCE = 6.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=3000, help="how many, numbered from --first")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="JSON lines; appended to, finished problems are skipped")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--family", choices=sorted(FAMILIES), default=None, help="only this kind of problem")
    parser.add_argument("--small", action="store_true", help="the smaller problems that the tests use")
    parser.add_argument("--unpaired", action="store_true", help="leave out the pairs of options")
    parser.add_argument("--quick", action="store_true", help="search shorter for better models than the package's")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a call is cut off")
    parser.add_argument("--only", type=int, default=None, help="run one problem and print all about it")
    parser.add_argument("--store", action="store_true", help="keep the counts of --out for the documentation")
    parser.add_argument("--summary", action="store_true", help="print the counts of --out and do nothing else")
    return parser.parse_args()


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Run one problem in a process of its own, which the system ends where it hangs inside compiled code."""
    signal.alarm(int(_PATIENCE * job["limits"].call))
    try:
        return run_trial(**job)
    finally:
        signal.alarm(0)


def run(jobs: list[dict[str, Any]], n_workers: int, out: Path | None) -> list[dict[str, Any]]:
    """Run the jobs on some workers, store and print every record."""
    records, began = [], time.monotonic()
    with multiprocessing.get_context("spawn").Pool(min(n_workers, len(jobs)) or 1) as pool:
        for job, answer in [(job, pool.apply_async(work, (job,))) for job in jobs]:
            seconds = _PATIENCE * job["limits"].call + 10.0
            try:
                record = answer.get(seconds)
            except multiprocessing.TimeoutError:  # a process that died, or was ended, has no answer
                case = draw_case(**{name: value for name, value in job.items() if name != "limits"})
                record = blank(case) | {"verdicts": {"timeout": [f"no answer in {seconds:g} s, or the process died"]}}
            records.append(record)
            if out is not None:
                append(out, record)
            print_record(record, len(records), len(jobs), time.monotonic() - began)
    return records


def main() -> int:
    options = arguments()
    if options.summary or options.store:
        print_summary(stored(options.out))
        if options.store:
            store_counts(stored(options.out))
        return 0
    fingerprint("torture")  # of the code that is imported now, whatever is edited while it runs
    limits = QUICK if options.quick else Limits(call=options.limit)
    named = {"seed": options.seed, "small": options.small, "family": options.family, "paired": not options.unpaired}
    common = named | {"limits": limits}
    if options.only is not None:
        print(f"tests.torture.parts.cases.draw_case(**{named | {'number': options.only}})")
        record = run_trial(number=options.only, **common)
        print(json.dumps(record, indent=1))
        if options.out is not None:
            append(options.out, record)
        return 0
    earlier = stored(options.out)
    done = {each["command"] for each in earlier}
    numbers = range(options.first, options.first + options.problems)
    left = [k for k in numbers if command(number=k, **named) not in done]
    jobs = [{"number": number, **common} for number in left]
    print_summary(earlier + run(jobs, options.jobs, options.out))
    return 0
