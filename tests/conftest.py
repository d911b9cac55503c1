"""The suite's own options: `--shard K/N` runs every N-th slow test, and what was left out is said; no fixtures live here."""

import hashlib

import pytest

LISTED = 40
"""Tests that are left out and named; of more, only their number is said."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="K/N", type=_shard, help="run the K-th of N shards of the selected tests")


def _shard(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise pytest.UsageError(f"--shard: found {text!r}; allowed is K/N with 1 <= K <= N, such as --shard 1/4")
    return int(number), int(of)


class Shard:
    """Which of the selected tests run, and which of those came to an end."""

    def __init__(self, number: int, of: int) -> None:
        self.number, self.of = number, of
        self.others: list[str] = []
        self.open: dict[str, None] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        mine: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            dealt = int.from_bytes(hashlib.sha256(item.nodeid.encode()).digest()[:8], "big") % self.of
            (mine if dealt == self.number - 1 else others).append(item)
        items[:] = mine
        self.others = [item.nodeid for item in others]
        self.open = dict.fromkeys(item.nodeid for item in mine)
        config.hook.pytest_deselected(items=others)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.open.pop(nodeid, None)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.others:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for why, tests in ((f"in other shards than {self.number}/{self.of}", self.others), ("not finished", list(self.open))):
            terminalreporter.write_line(f"left out, {why}: {len(tests)} tests")
            for test in tests[:LISTED]:
                terminalreporter.write_line(f"  {test}")


def pytest_configure(config: pytest.Config) -> None:
    shard: tuple[int, int] | None = config.getoption("--shard")
    if shard is not None:
        config.pluginmanager.register(Shard(*shard))
