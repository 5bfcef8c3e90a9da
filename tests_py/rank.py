"""One rank of dropin.py: rank.py RANK SIZE FOLDER REPORT_DESCRIPTOR PORT,PORT,... SCENARIO..."""

import importlib
import json
import os
import sys

from world import World


def main():
    rank, size, folder, descriptor, ports, *scenarios = sys.argv[1:]
    reports = os.fdopen(int(descriptor), "w", buffering=1)

    def report(**what):
        reports.write(json.dumps(what) + "\n")

    world = World(int(rank), int(size), [int(port) for port in ports.split(",")], folder, report)
    with world.mode:
        for scenario in scenarios:
            report(scenario=scenario)
            world.check(f"{scenario}: start", World.start)
            importlib.import_module(scenario).run(world)
            world.check(f"{scenario}: finalize", World.stop)
    report(done=True)
    reports.close()


if __name__ == "__main__":
    main()
