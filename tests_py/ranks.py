"""Starts ranks as processes, follows their reports, and ends them when one dies or is stuck."""

import json
import os
import selectors
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Job:
    """Ranks that run scenarios in one set of processes.

    on_check(name, verdicts) is called when every rank has reported a check; verdicts are (state, text) by rank."""

    def __init__(self, size, scenarios, folder, logs, patience_s, on_check):
        self.size, self.scenarios, self.patience_s, self.on_check = size, scenarios, patience_s, on_check
        self.begun_scenarios, self.current, self.done = [], {}, set()
        self._verdicts, self._open, self._text = {}, selectors.DefaultSelector(), {}
        self._processes, self._logs = [], []
        ports = ",".join(map(str, free_ports(24)))
        for rank in range(size):
            read_end, write_end = os.pipe()
            log = os.path.join(logs, f"rank{rank}.log")
            self._logs.append(log)
            with open(log, "a") as out:
                self._processes.append(subprocess.Popen(
                    [sys.executable, os.path.join(HERE, "rank.py"), str(rank), str(size), folder, str(write_end), ports, *scenarios],
                    stdout=out, stderr=out, stdin=subprocess.DEVNULL, pass_fds=[write_end]))
            os.close(write_end)
            self._open.register(read_end, selectors.EVENT_READ, rank)
            self._text[rank] = b""

    def run(self):
        """Until all ranks are done. Returns None, or a sentence that says what ended the job early."""
        trouble, deadline = None, time.monotonic() + self.patience_s
        while self._open.get_map() and trouble is None:
            ready = self._open.select(max(0, deadline - time.monotonic()))
            if not ready:
                trouble = self._stuck()
            for key, _ in ready:
                failed_before = self._somebody_failed()
                trouble = self._read(key) or trouble
                # Where a rank failed in a collective check the others may wait for it in vain.
                if not failed_before and self._somebody_failed():
                    deadline = time.monotonic() + min(20, self.patience_s)
                elif not self._somebody_failed():
                    deadline = time.monotonic() + self.patience_s
        self._end()
        return trouble

    def _somebody_failed(self):
        return any(state == "failed" for verdicts in self._verdicts.values() for state, _ in verdicts.values())

    def _read(self, key):
        rank, data = key.data, os.read(key.fd, 65536)
        if not data:
            self._open.unregister(key.fd)
            os.close(key.fd)
            if rank in self.done:
                return None
            status = self._processes[rank].wait()
            how = f"signal {-status}" if status < 0 else f"status {status}"
            return f"rank {rank} ended with {how} in \"{self.current.get(rank, 'the start')}\"; the end of its log:\n{self._log_end(rank)}"
        *lines, self._text[rank] = (self._text[rank] + data).split(b"\n")
        for line in lines:
            self._take(rank, json.loads(line))
        return None

    def _take(self, rank, message):
        if "done" in message:
            self.done.add(rank)
        elif "scenario" in message:
            if message["scenario"] not in self.begun_scenarios:
                self.begun_scenarios.append(message["scenario"])
        elif message["state"] == "begun":
            self.current[rank] = message["check"]
        else:
            verdicts = self._verdicts.setdefault(message["check"], {})
            verdicts[rank] = (message["state"], message["text"])
            if len(verdicts) == self.size:
                self.on_check(message["check"], self._verdicts.pop(message["check"]))

    def _stuck(self):
        where = ", ".join(f"rank {rank} in \"{self.current.get(rank, 'the start')}\"" for rank in range(self.size) if rank not in self.done)
        said = "".join(f"\nrank {rank} said: {text}" for verdicts in self._verdicts.values()
                       for rank, (state, text) in sorted(verdicts.items()) if state == "failed")
        return f"nothing happens: {where}{said}"

    def _log_end(self, rank):
        with open(self._logs[rank], errors="replace") as log:
            return "".join(log.readlines()[-8:]).rstrip()

    def _end(self):
        until = time.monotonic() + 20
        for process in self._processes:
            if len(self.done) == self.size:
                try:
                    process.wait(max(0.1, until - time.monotonic()))
                    continue
                except subprocess.TimeoutExpired:
                    pass
            process.kill()
            process.wait()
        for key in list(self._open.get_map().values()):
            self._open.unregister(key.fd)
            os.close(key.fd)

    def exit_statuses(self):
        return [process.returncode for process in self._processes]
