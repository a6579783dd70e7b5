"""Mutation tests: removes one guard after the other from its source. A simulator must fail then.
Only the changed source is compiled; the test program, or the library with the decisions of the
launcher, is linked with it in front of the libraries.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

from devtool.mutations import ELASTIC, MUTATIONS, Mutation
from devtool.paths import BUILD, ROOT, venv_program
from devtool.process import Failed, must, run_logged, say, side_by_side, tail
from devtool.setup import cores

RELEASE = BUILD / "release"
#: A mutant that hangs is not found: checkers must notice a hang by themselves.
DEADLINE_S = 300
#: Exit codes of pytest if it has not run the tests.
NOT_RUN = (2, 3, 4, 5)


def changed_text(mutation: Mutation) -> str:
    text = (ROOT / mutation.file).read_text()
    if text.count(mutation.find) != 1:
        raise Failed(
            f"{mutation.guard}: `{mutation.find}` occurs {text.count(mutation.find)} times in "
            f"{mutation.file}, and should occur once"
        )
    return text.replace(mutation.find, mutation.replace)


def run_all() -> list[str]:
    """Returns the guards whose absence was not found. Raises Failed if a mutant does not build."""
    with side_by_side(cores()) as several:
        runs = [
            (one, several.submit(is_found, number, one)) for number, one in enumerate(MUTATIONS)
        ]
        return [one.guard for one, run in runs if not run.result()]


def is_found(number: int, mutation: Mutation) -> bool:
    name = f"mutant-{number}"
    made, command, env = program_of(mutation, name)
    env["HVD_SIM_SEEDS"] = str(mutation.seeds)
    ended = run_logged(command, name, deadline_s=DEADLINE_S, env=env)
    made.unlink()
    found = ended.code not in (0, *NOT_RUN) and not ended.timed_out
    say(f"  {'found' if found else 'NOT FOUND'}: {mutation.guard}")
    if not found:
        say(tail(ended.log, 10))
    return found


def program_of(mutation: Mutation, name: str) -> tuple[Path, list[str], dict[str, str]]:
    """What was linked, the command that simulates with it, and the variables for it."""
    if mutation.found_by == ELASTIC:
        made = link(mutation, name, "launcher/libelastic_driver.so")
        command = [venv_program("python"), "-m", "pytest", "-x", "tests/elastic", "-k", "counts"]
        return made, command, {"HVD_ELASTIC_DRIVER": str(made)}
    made = link(mutation, name, "core/sim/test_sim")
    options = [f"--gtest_filter={mutation.found_by}", "--gtest_brief=1"]
    return made, [str(made), *options], {}


def link(mutation: Mutation, name: str, target: str) -> Path:
    """Returns `target` with the mutant in place of the source."""
    folder = BUILD / "mutants" / name
    folder.mkdir(parents=True, exist_ok=True)
    changed = folder / Path(mutation.file).name
    changed.write_text(changed_text(mutation))
    made = str(changed.with_suffix(".o"))
    command = compile_command(ROOT / mutation.file)
    must([*command[: command.index("-o")], "-w", "-o", made, "-c", str(changed)], name)
    program = folder / Path(target).name
    command = link_command(target)
    at = command.index("-o")
    whole = [*command[:at], made, "-o", str(program), *command[at + 2 :]]
    must(["env", "-C", str(RELEASE), *whole], f"{name}-link")
    return program


def compile_command(source: Path) -> list[str]:
    for entry in json.loads((RELEASE / "compile_commands.json").read_text()):
        if entry["file"] == str(source):
            return shlex.split(entry["command"])
    raise Failed(f"{source} is not compiled in build/release")


def link_command(target: str) -> list[str]:
    """Relative to build/release. The libraries come behind the object of a mutated source, so that
    the linker does not take the old one."""
    listing = ["ninja", "-C", str(RELEASE), "-t", "commands", "-s", target]
    text = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    command = text.strip().splitlines()[-1]
    return shlex.split(command.removeprefix(": && ").removesuffix(" && :"))
