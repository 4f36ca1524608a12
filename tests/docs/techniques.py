#!/usr/bin/env python3
"""The twelve techniques: page, switch, measurement, test, exercises and mistake of each, as a table of docs/README.md.

    tests/docs/techniques.py            writes the table between the markers
    tests/docs/techniques.py --check    says what does not exist, and whether the table is another one; exit code 1

Seven are the rows of halfstep-bench techniques; the other five have a command that shows what they do. A page without exercises,
a switch that no command declares, or a mistake that no list of mutants has is a problem.
"""
import pathlib
import re
import sys
from typing import NamedTuple

from marked import replaced

top = pathlib.Path(__file__).resolve().parent.parent.parent


class Technique(NamedTuple):
    name: str
    page: str       # below docs/, with a section "Exercises" and answers in docs/exercises/answers
    switches: str   # flags, declared in bench/ and named by the page
    measured: str   # "row NAME" of halfstep-bench techniques, or a sub-command
    test: str       # below tests/
    exercises: str  # folders of docs/exercises, beside the questions of the page
    list: str       # in tests/mutants
    only: str       # words that one mutant of the list has


TECHNIQUES = [
    Technique("caching", "techniques/data_pipeline.md", "--cache", "row cache", "data/loader_formats.cpp", "",
              "loader", "two threads read a sample"),
    Technique("prefetching", "techniques/data_pipeline.md", "--prefetch --workers", "row prefetch", "data/loader.cpp", "07",
              "loader", "as they arrive"),
    Technique("mixed precision", "techniques/mixed_precision.md", "--precision", "row mixed precision",
              "models/mixed_precision.cpp", "05 08", "mixed_precision", "no master weights"),
    Technique("gradient accumulation", "techniques/gradient_accumulation.md", "--accumulate", "row accumulation",
              "models/accumulation.cpp", "06", "memory", "the loss is not divided"),
    Technique("activation checkpointing", "techniques/activation_checkpointing.md", "--checkpoint", "row checkpointing",
              "models/checkpoint_models.cpp", "", "memory", "dropout is drawn again"),
    Technique("fast CPU kernels", "techniques/cpu_kernels.md", "--fuse --kernel --tuning", "row fast kernels",
              "kernels/op_variants.cpp", "03", "conv2d", "are not turned around"),
    Technique("GPU kernels and captured steps", "techniques/gpu_kernels.md", "--graph --graph-steps", "row graph",
              "cuda/training.cpp", "", "cuda", "never gets the epoch"),
    Technique("data parallel", "techniques/data_parallel.md", "--reduce --bucket-kib --wire", "scale", "models/ranks.cpp", "02",
              "ranks", "mean of its own"),
    Technique("attention without its matrix", "techniques/attention.md", "--model --kernel", "tune",
              "kernels/causal_attention.cpp", "", "sequences", "causal_attention: a query sees the next key"),
    Technique("optimizers, schedules and averages", "recipes.md", "--optimizer --schedule --ema", "lr-find",
              "engine/optim.cpp", "", "mixed_precision", "clip before unscale"),
    Technique("augmentation", "recipes.md", "--augment", "train", "kernels/augment.cpp", "",
              "cuda", "goes by the first sample"),
    Technique("saving and resuming", "techniques/checkpoint_and_resume.md", "--save --resume", "train", "models/resume.cpp", "",
              "resume", "memory is not restored"),
]


def program():
    """What bench/ declares: flags, rows of `techniques`, sub-commands."""
    text = "".join(path.read_text() for path in sorted((top / "bench").rglob("*.cpp")))
    rows = re.findall(r'^      \{"([a-z ]+)", "', (top / "bench/measure/techniques.cpp").read_text(), re.M)
    commands = re.findall(r'std::string name\(\) const override \{ return "([a-z-]+)"; \}', text)
    return set(re.findall(r'"(--[a-z-]+)"', text)), rows, commands


def problems_of(one, flags, rows, commands):
    page = top / "docs" / one.page
    text = page.read_text() if page.is_file() else ""
    missing = [] if "\n## Exercises\n" in text else [f"docs/{one.page} with a section Exercises"]
    files = [f"docs/exercises/answers/{page.name}", f"tests/{one.test}", f"tests/mutants/{one.list}.txt"]
    files += [f"docs/exercises/{number}/check.cpp" for number in one.exercises.split()]
    missing += [name for name in files if not (top / name).is_file()]
    missing += [f"a flag {flag} in bench/" for flag in one.switches.split() if flag not in flags]
    missing += [f"{flag} on docs/{one.page}" for flag in one.switches.split() if flag not in text]
    if one.measured.removeprefix("row ") not in (rows if one.measured.startswith("row ") else commands):
        missing.append(f"{one.measured} of halfstep-bench")
    if (top / files[2]).is_file():
        mistakes = re.findall(r"^  (\S.*?) \|", (top / files[2]).read_text(), re.M)
        if sum(one.only in mistake for mistake in mistakes) != 1:
            missing.append(f'a single mutant with "{one.only}" in {files[2]}')
    return [f"{one.name}: missing: {what}" for what in missing]


def table():
    lines = ["| technique | switch | measured by | test | exercises | break it |", "|---|---|---|---|---|---|"]
    for one in TECHNIQUES:
        work = [f"[{number}](exercises/{number}/exercise.h)" for number in one.exercises.split()]
        lines.append("| " + " | ".join([
            f"[{one.name}]({one.page})", ", ".join(f"`{flag}`" for flag in one.switches.split()),
            one.measured.replace("row ", "`techniques`, row ") if one.measured.startswith("row ") else f"`{one.measured}`",
            f"[{one.test}](../tests/{one.test})", ", ".join([f"[questions]({one.page}#exercises)"] + work),
            f'`{one.list} --only "{one.only}"`']) + " |")
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    page, declared = top / "docs/README.md", program()
    text = page.read_text()
    problems = [problem for one in TECHNIQUES for problem in problems_of(one, *declared)]
    new = replaced(text, "techniques", table())
    if new is None:
        problems.append("docs/README.md: the markers are missing, expected <!-- techniques:begin --> and <!-- techniques:end -->")
    elif not sys.argv[1:]:
        page.write_text(new)
    elif new != text:
        problems.append("docs/README.md: the table of techniques is another one; run tests/docs/techniques.py")
    rows = [one.measured[4:] for one in TECHNIQUES if one.measured.startswith("row ")]
    if rows != declared[1]:
        problems.append(f"halfstep-bench techniques has the rows {declared[1]}, expected {rows}")
    print("".join(f"{problem}\n" for problem in problems) + f"{len(TECHNIQUES)} techniques; {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
