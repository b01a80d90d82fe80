"""What `bin/stack` does: up, down, env, and start, stop or kill of one server.

Servers are independent of one another, so they start and stop side by side. Every command holds
the stack's lock, so that two commands on one stack run one after the other.
"""

import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import binaries, certificates, kafka, layout, packages, ports, postgres, processes, registry
from .report import Failure, say

_MODULES = {"publisher": postgres, "subscriber": postgres, "kafka": kafka, "registry": registry}


def up(stack, versions):
    """Makes the stack if it is not there, and starts every server that does not run."""
    with _locked(stack, make=True):
        if stack.exists():
            _same_versions(stack.load(), versions)
        else:
            stack.versions = {name: major or 18 for name, major in versions.items()}
            ports.choose(stack)
        packages.require(packages.SERVERS)
        stack.make_home(postgres.system_user().uid)
        certificates.make(stack)
        for major in sorted(set(stack.versions.values())):
            binaries.postgres(major)
        binaries.kafka()
        binaries.registry()
        _side_by_side(stack, _start, layout.SERVERS)


def _same_versions(stack, versions):
    for name, major in versions.items():
        if major and stack.versions[name] != major:
            raise Failure(
                f"{stack.directory} has a {name} of version {stack.versions[name]}; "
                "another version wants another directory, or bin/stack down --remove first")


def down(stack, remove):
    """Ends every server of the stack; with `remove` its files too."""
    if not stack.exists():
        return
    with _locked(stack):
        stack.load()
        _side_by_side(stack, _stop, layout.SERVERS)
        if remove:
            stack.remove()
            ports.release(stack)


def variables(stack):
    """The variables by which tests, demo and benchmarks find the servers."""
    stack.load()
    return {
        "WALBRAID_PUBLISHER_URL": postgres.url(stack, "publisher"),
        "WALBRAID_SUBSCRIBER_URL": postgres.url(stack, "subscriber"),
        "WALBRAID_KAFKA": kafka.address(stack),
        "WALBRAID_REGISTRY_URL": registry.url(stack),
        "WALBRAID_STACK_DIR": str(stack.directory),
    }


def tell(stack):
    """Says where each server is, and what goes on from here."""
    where = variables(stack)
    for name, key in (("publisher", "PUBLISHER_URL"), ("subscriber", "SUBSCRIBER_URL"),
                      ("kafka", "KAFKA"), ("registry", "REGISTRY_URL")):
        say(f"{name:<10}  {where[f'WALBRAID_{key}']}")
    directory = shlex.quote(str(stack.directory))
    program = shlex.quote(str(Path(__file__).resolve().parents[2] / "bin/stack"))
    say(f"logs        {directory}/*.log")
    say(f'variables   eval "$({program} env --dir {directory})"')
    say(f"to end it   {program} down --dir {directory}")


def exports(stack):
    """The same as lines for a shell."""
    lines = (f"export {key}={shlex.quote(value)}\n" for key, value in variables(stack).items())
    return "".join(lines)


def one(stack, action, name):
    """start, stop or kill of one server."""
    with _locked(stack):
        stack.load()
        {"start": _start, "stop": _stop, "kill": processes.kill}[action](stack, name)


def _start(stack, name):
    if processes.running(stack, name) is None:
        _MODULES[name].start(stack, name)


def _stop(stack, name):
    module = _MODULES[name]
    if not processes.stop(stack, name, module.CLEAN_STOP, module.STOP_S):
        say(f"{name} did not stop within {module.STOP_S} s and was killed")


def _side_by_side(stack, act, names):
    with ThreadPoolExecutor(len(names)) as pool:
        results = [pool.submit(act, stack, name) for name in names]
    failures = [str(error) for result in results if (error := result.exception())]
    if failures:
        raise Failure("\n".join(failures))


def _locked(stack, make=False):
    if make:
        stack.directory.mkdir(parents=True, exist_ok=True)
    elif not stack.exists():
        raise Failure(f"there is no stack in {stack.directory}; bin/stack up makes one")
    return layout.held(stack.directory / "lock")
