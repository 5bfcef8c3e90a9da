"""Runs the published Python package pylibwholegraph over a libwholegraph.so and checks what it does.

The last line is "N passed, N failed"; the status is 0 when nothing failed, 77 when it cannot run here. Start it
through tests_py/run, which sets the paths.
"""

import argparse
import os
import shutil
import sys
import tempfile

SCENARIOS = ("communicators", "tensors", "operations", "embeddings", "graphs", "files", "lifetime")


def arguments():
    parser = argparse.ArgumentParser(
        prog="tests_py/run", description=__doc__.split("\n")[0], epilog="tests_py/run --install installs the package and runs nothing."
    )
    parser.add_argument("--lib", choices=("ours", "published"), default="ours", help="whose library this is")
    parser.add_argument("--nproc", type=int, default=1, metavar="N", help="ranks; they share GPUs if there are fewer (1)")
    parser.add_argument("--only", default=",".join(SCENARIOS), metavar="NAME,...", help=f"some of {' '.join(SCENARIOS)}")
    parser.add_argument("--patience", type=float, default=90, metavar="SECONDS", help="how long one check may last (90)")
    parser.add_argument("--logs", default="build/dropin", metavar="FOLDER", help="what ranks print goes there (build/dropin)")
    # For the script that starts this: prints whose library is asked for, and nothing else is done.
    parser.add_argument("--parse-only", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.only = chosen.only.split(",")
    for name in chosen.only:
        if name not in SCENARIOS:
            parser.error(f"--only does not know {name!r}; it knows {' '.join(SCENARIOS)}")
    if chosen.nproc < 1:
        parser.error(f"--nproc is {chosen.nproc}, it must be 1 or more")
    return chosen


def cannot_run(chosen):
    """Why this cannot run here; None if it can."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported: {error}"
    if chosen.lib == "published":
        if not torch.cuda.is_available():
            return "the published library needs a GPU"
        if torch.cuda.device_count() < chosen.nproc:
            return f"the published library needs a GPU a rank: {chosen.nproc} ranks, {torch.cuda.device_count()} GPUs"
    return None


def main():
    chosen = arguments()
    if chosen.parse_only:
        print(chosen.lib)
        return 0
    if "DROPIN_LIBRARY" not in os.environ:
        sys.exit("DROPIN_LIBRARY does not name the library: start this through tests_py/run")
    os.environ["DROPIN_LIB"] = chosen.lib
    reason = cannot_run(chosen)
    if reason:
        print(f"skip: {reason}")
        return 77

    from ranks import Job

    counts = {"ok": 0, "failed": 0, "left out": 0}

    def on_check(name, verdicts):
        states = {state for state, _ in verdicts.values()}
        state = "failed" if "failed" in states else "ok" if "ok" in states else "left out"
        counts[state] += 1
        if state == "failed":
            print(f"FAIL  {name}")
            for rank, (its_state, text) in sorted(verdicts.items()):
                if its_state == "failed":
                    print(f"      rank {rank}: {text[:600]}")
        else:
            text = next((text for its_state, text in verdicts.values() if its_state == "left out"), "")
            print(f"{'ok  ' if state == 'ok' else 'skip'}  {name}{': ' + text if text else ''}")
        sys.stdout.flush()

    print(f"pylibwholegraph over {os.environ['DROPIN_LIBRARY']}, {chosen.nproc} ranks")
    os.makedirs(chosen.logs, exist_ok=True)
    for rank in range(chosen.nproc):
        open(os.path.join(chosen.logs, f"rank{rank}.log"), "w").close()
    folder = tempfile.mkdtemp(prefix="dropin")
    try:
        left = list(chosen.only)
        while left:
            job = Job(chosen.nproc, left, folder, chosen.logs, chosen.patience, on_check)
            trouble = job.run()
            if trouble is None and any(job.exit_statuses()):
                trouble = f"ranks ended with {job.exit_statuses()} after their last check"
            if trouble is None:
                break
            counts["failed"] += 1
            print(f"FAIL  {trouble}", flush=True)
            # What was begun is lost; what follows gets processes of its own.
            left = left[max(1, len(job.begun_scenarios)):]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    skipped = f", {counts['left out']} skipped" if counts["left out"] else ""
    print(f"{counts['ok']} passed, {counts['failed']} failed{skipped}")
    return 1 if counts["failed"] or not counts["ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
