"""The command line: which page, which run, and one clear line for everything that does not fit.

Modules are imported where they are needed, so that `--list` answers at once and a headless run loads
neither textual nor torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from labs.catalog import catalog, spec_of
from labs.flags import take, unknown
from labs.params import Field, LabSpec, ParameterError, fields_of, nearest, parse, read
from workbench import exercise_flags, usage
from workbench.console import SET_TERM, complain, is_terminal, is_text, prepare, say, tell

OK = 0
USAGE = 2
INTERRUPTED = 130
HELP = ("--help", "-h")
TRACEBACK_VARIABLE = "WORLDSIZE_TRACEBACK"


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the words ask for; returns the exit code. Never raises, never shows a traceback by itself."""
    words = list(sys.argv[1:] if argv is None else argv)
    prepare()
    try:
        _check_text(words)
        return _dispatch(words)
    except ParameterError as error:
        complain(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        _unexpected(error)
    return USAGE


def _check_text(words: Sequence[str]) -> None:
    """Refuse bytes that are no text here: they could be written into no manifest."""
    for word in words:
        if not is_text(word):
            hint = "set LANG=C.UTF-8" if sys.getfilesystemencoding() != "utf-8" else "give it in UTF-8"
            raise ParameterError(word, f"is not text in {sys.getfilesystemencoding()}; {hint}")


def _unexpected(error: Exception) -> None:
    """A defect of ours or a broken installation: say where, and how to see more."""
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    complain(f"{type(error).__name__} at {where}: {error}; {TRACEBACK_VARIABLE}=1 shows the traceback")
    if os.environ.get(TRACEBACK_VARIABLE):
        tell("".join(traceback.format_exception(error)))


def _dispatch(words: list[str]) -> int:
    fields = usage.run_fields()
    flag_of_run = fields[0].flag
    if any(word.partition("=")[0] == flag_of_run for word in words):
        return _run(words, fields)
    if any(word in HELP for word in words):
        say(usage.overview())
        return OK
    if exercise_flags.asked(words):
        return exercise_flags.run(words)
    return _page(words)


def _run(words: list[str], common: tuple[Field, ...]) -> int:
    spec = _lab_of(words, common)
    if any(word in HELP for word in words):
        say(usage.lab_page(spec))
        return OK
    own = fields_of(spec.params)
    given, rest = take([*common, *own], words)
    if rest:
        raise _stranger(spec, rest, common)
    from workbench import settings

    chosen = settings.load()
    with chosen.blamed(given):
        return _start(spec, chosen.below(given, common), common)


def _start(spec: LabSpec, given: dict[str, str | bool], common: tuple[Field, ...]) -> int:
    """Run the lab with what the flags and the settings give."""
    names = {field.name for field in common}
    flags = read(usage.RunFlags, {name: text for name, text in given.items() if name in names})
    lab_given = {name: text for name, text in given.items() if name not in names}
    params = parse(spec, lab_given, flags.nproc or spec.default_ranks)
    if flags.gantt:
        _check_gantt(spec, flags)

    from workbench import machine, session

    options = session.RunOptions(
        nproc=flags.nproc,
        device=flags.device,
        seed=flags.seed,
        timeout_s=flags.timeout,
        runs_dir=flags.runs_dir,
        launcher=flags.launcher,
    )
    found = machine.probe()
    if flags.dry_run:
        session.check(spec, params, options, found)
        _, device, _ = machine.backend_for(found, options.world_size(spec), options.device)
        say(session.torchrun_command(spec, params, options, device))
        return OK

    if flags.detach:
        from workbench import elsewhere

        return elsewhere.start(spec, params, options, found, as_json=flags.json)

    from workbench import headless

    return headless.run(
        spec, params, options, found, as_json=flags.json, quiet=flags.quiet, gantt=flags.gantt
    )


def _check_gantt(spec: LabSpec, flags: usage.RunFlags) -> None:
    """Refuse `--gantt` where there would be no picture, or no place for it."""
    from workbench.exports import text

    text.check_lab(spec)
    for other in ("json", "detach", "dry_run"):
        if getattr(flags, other):
            raise ParameterError(text.FLAG, f"does not go with --{other.replace('_', '-')}")


def _lab_of(words: list[str], common: tuple[Field, ...]) -> LabSpec:
    """The lab that `--run` names, before anything else is read: its flags depend on it."""
    given, _ = take(common[:1], words)
    lab = str(given["run"])
    if lab not in catalog():
        known = list(catalog())
        raise ParameterError("--run", f"no lab named {lab!r}; {nearest(lab, known)}labs: {', '.join(known)}")
    return spec_of(lab)


def _stranger(spec: LabSpec, rest: list[str], common: tuple[Field, ...]) -> ParameterError:
    word = rest[0].partition("=")[0]
    flags = ", ".join(field.flag for field in fields_of(spec.params)) or "none"
    if word in {field.flag for field in fields_of(usage.PageFlags)}:
        return ParameterError(word, "does not go with --run")
    if not word.startswith("-"):
        return ParameterError(word, f"belongs to no flag of {spec.id}; its parameters: {flags}")
    return unknown(spec, rest, [field.flag for field in common])


def _page(words: list[str]) -> int:
    fields = fields_of(usage.PageFlags)
    given, rest = take(fields, words)
    if rest:
        raise _no_such_flag(rest[0].partition("=")[0], fields)
    pages = [name for name in usage.PAGES if name in given]
    if len(pages) > 1:
        raise ParameterError(f"--{pages[1]}", f"does not go with --{pages[0]}; give one of them")
    read(usage.PageFlags, given)
    for name in usage.OF_A_RUN:
        if given.get(name) == "":
            raise ParameterError(f"--{name}", "needs a run: its id, a unique prefix, latest, or a folder")
    page = pages[0] if pages else "app"
    _check_page(page, given)
    if page in WITHOUT_SETTINGS:
        return PAGES[page](read(usage.PageFlags, given))

    from workbench import settings

    chosen = settings.load()
    with chosen.blamed(given):
        return PAGES[page](read(usage.PageFlags, chosen.below(given, fields)))


def _check_page(page: str, given: dict[str, str | bool]) -> None:
    """Refuse flags that do not go with the page.

    Raises:
        ParameterError: naming the flag.
    """
    if given.get("json") and page not in ("list", "runs", "progress", "doctor"):
        raise ParameterError("--json", "goes with --run LAB, --list, --runs, --progress and --doctor")
    if given.get("runs_dir") and page in ("list", "version", "progress", "reset"):
        raise ParameterError("--runs-dir", f"does not go with --{page}")
    for name in usage.EXPORT_ONLY:
        if name in given and page != "export":
            raise ParameterError(f"--{name}", "goes with --export RUN")
    if given.get("reset") == "":
        raise ParameterError("--reset", "needs a lab or an exercise; workbench --progress lists them")
    if given.get("gantt") and page != "replay":
        raise ParameterError("--gantt", "goes with --run LAB and with --replay RUN")
    if page not in ("app", "replay", "attach"):
        for name in usage.APP_ONLY:
            if name in given:
                raise ParameterError(f"--{name}", f"shapes the app; it does not go with --{page}")


def _no_such_flag(word: str, fields: Sequence[Field]) -> ParameterError:
    flags = ["--run", *(field.flag for field in fields), "--help"]
    if not word.startswith("-"):
        hint = f"--run {word} runs that lab; " if word in catalog() else ""
        return ParameterError(word, f"no such command; {hint}workbench --help shows what there is")
    if word in {field.flag for field in usage.run_fields()}:
        return ParameterError(word, "goes with --run LAB")
    if word in {field.flag for field in fields_of(exercise_flags.ExerciseFlags)}:
        return ParameterError(word, "goes with --exercise NAME or --check NAME")
    return ParameterError(word, f"no such flag; {nearest(word, flags)}allowed: {', '.join(flags)}")


def _list(flags: usage.PageFlags) -> int:
    specs = list(catalog().values())
    say(usage.labs_json(specs) if flags.json else usage.labs_page(specs))
    return OK


def _version(_flags: usage.PageFlags) -> int:
    from workbench.machine import version_of

    say(f"worldsize {version_of('worldsize')}")
    return OK


def _runs(flags: usage.PageFlags) -> int:
    from workbench import runs, session

    runs_dir = session.runs_dir_of(flags.runs_dir)
    session.check_readable(runs_dir, flags.runs_dir)
    kept = runs.kept_runs(runs_dir)
    say(runs.as_json(kept) if flags.json else runs.page(kept, runs_dir))
    return OK


def _doctor(flags: usage.PageFlags) -> int:
    from workbench import doctor

    return doctor.show(flags.runs_dir, flags.json)


def _stop(flags: usage.PageFlags) -> int:
    from workbench import elsewhere, runs, session

    return elsewhere.stop(runs.resolve(flags.stop, session.runs_dir_of(flags.runs_dir), "--stop"))


def _progress(flags: usage.PageFlags) -> int:
    from workbench import course_map
    from workbench.course import Course

    course = Course()
    if flags.reset:
        say(course_map.reset(course, flags.reset))
    else:
        found = course_map.stops(course)
        say(course_map.as_json(found, course) if flags.json else course_map.page(found, course))
    if course.problem:
        tell(course.problem)
    return OK


def _export(flags: usage.PageFlags) -> int:
    from workbench import runs, session
    from workbench.exports import formats

    folder = runs.resolve(flags.export, session.runs_dir_of(flags.runs_dir), "--export")
    output = Path(flags.output).expanduser() if flags.output else None
    say(str(formats.export(folder, flags.format, output)))
    return OK


def _app(flags: usage.PageFlags) -> int:
    from workbench import runs, session, settings
    from workbench.options import AppOptions

    runs_dir = session.runs_dir_of(flags.runs_dir)
    flag, name = ("--attach", flags.attach) if flags.attach else ("--replay", flags.replay)
    opened = runs.resolve(name, runs_dir, flag) if name else None
    if flags.gantt and opened is not None:
        from workbench.exports import text

        say(text.schedule(opened, sys.stdout.encoding))
        return OK
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        if opened is not None:
            status = runs.load(opened).status
            raise ParameterError(flag, f"needs a terminal on stdin and stdout; {opened.name}: {status}")
        if sys.stdin.isatty() and sys.stdout.isatty():
            raise ParameterError(f"TERM={os.environ.get('TERM', '')}", SET_TERM)
        raise ParameterError(
            "terminal",
            "the app needs one on stdin and stdout; without one, run a lab headless: workbench --run LAB "
            "(workbench --list shows the labs)",
        )
    run = read(usage.RunFlags, settings.load().below({}, usage.run_fields()))
    options = AppOptions(
        ascii=flags.ascii,
        mouse=flags.mouse,
        refresh_hz=flags.refresh,
        theme=flags.theme,
        runs_dir=runs_dir if flags.runs_dir else None,
        nproc=run.nproc,
        device=run.device,
        seed=run.seed,
        timeout_s=run.timeout,
        launcher=run.launcher,
    )

    from workbench.app import run_app

    return run_app(options, opened)


WITHOUT_SETTINGS = ("list", "version", "progress", "reset", "doctor")
"""Pages that work whatever is wrong with the settings; the doctor says what that is."""
PAGES: dict[str, Callable[[usage.PageFlags], int]] = {
    "list": _list,
    "version": _version,
    "runs": _runs,
    "doctor": _doctor,
    "replay": _app,
    "attach": _app,
    "stop": _stop,
    "export": _export,
    "progress": _progress,
    "reset": _progress,
    "app": _app,
}
