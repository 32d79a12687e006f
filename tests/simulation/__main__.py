"""Runs the simulation from seeds: `python -m tests.simulation --seeds 1000`."""

from __future__ import annotations

import argparse
import logging
import time

from tests.simulation.scenario import SECONDS, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for which each system is disturbed")
    parser.add_argument("--calm", action="store_true", help="nothing is done to the systems")
    parser.add_argument("--story", action="store_true", help="tell what was done")
    parser.add_argument("--log", action="store_true", help="show what the system logs")
    asked = parser.parse_args()
    # What is logged as an error is looked at in any case.
    shown: logging.Handler = logging.StreamHandler() if asked.log else logging.NullHandler()
    logging.basicConfig(level=logging.INFO if asked.log else logging.ERROR, handlers=[shown])
    began, passed, failed = time.process_time(), 0.0, list[int]()
    for seed in range(asked.first, asked.first + asked.seeds):
        outcome = run(seed, asked.seconds, asked.calm)
        passed += outcome.seconds
        if asked.story:
            print("\n".join(outcome.story))
        told = f"{outcome.steps} steps, {outcome.derived} derived, {outcome.deliveries} deliveries, {outcome.gone} gone"
        deaths = f"; {outcome.deaths} processes ended, as is to be where the journal fails" if outcome.deaths else ""
        print(f"seed {seed}: {outcome.seconds:.0f} s, {told}{deaths}", flush=True)
        for fault in outcome.faults[:10]:
            print("   ", fault[:3_000])
        failed += [seed] if outcome.faults else []
    spent = time.process_time() - began
    print(f"{asked.seeds} seeds, {passed / 3600:.1f} hours in {spent:.0f} s; failed: {failed or 'none'}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
