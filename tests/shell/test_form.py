"""Values are filled into commands so that none can become syntax."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from em.errors import RoutineError
from em.shell.form import SCRIPT, CommandTemplate, UnsafeValue, form_of
from strategies import examples


def test_paths_names_and_numbers_are_values_and_the_rest_is_the_form():
    form = form_of("grep -c pending orders.csv > report.txt")
    assert form.text == "grep -c {{ pattern }} {{ file }} > {{ output }}"
    assert form.args == {"pattern": "pending", "file": "orders.csv", "output": "report.txt"}
    assert (form.fixed, form.effect) == ({}, "write")
    other = form_of("grep  -c 'all open' \"sales data.csv\"   > out.txt")
    assert (other.name, other.args["file"]) == (form.name, "sales data.csv")
    assert form_of("grep -v pending orders.csv > report.txt").name != form.name


def test_the_name_tells_the_program():
    assert form_of("git commit -am x").name.startswith("git_commit_")
    assert form_of("cd x || exit 1; npm run build").name.startswith("npm_run_build_")
    assert form_of("cd x").name.startswith("cd_")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git commit -m 'a\nb' --author=Ann", {"message": "a\nb", "author": "Ann"}),
        ("head -n 20 x.txt", {"number": "20", "file": "x.txt"}),
        ("cat > a.txt <<'EOF'\nhi $x\nEOF", {"output": "a.txt", "text": "hi $x\n"}),
        ("make test", {}),
        ("sed -i 's/1.2/1.3/g' x", {"old_text": "1.2", "new_text": "1.3", "file": "x"}),
        ("sed -i '' 's|a/b|c|' x", {"old_text": "a/b", "new_text": "c", "file": "x"}),
        ("git commit -m'fix it'", {"message": "fix it"}),
        ("cd app || exit 1", {"folder": "app"}),
        ("tail -n5 x", {"number": "5", "file": "x"}),
        ("cat - x", {"file": "x"}),
    ],
)
def test_values_of_common_commands(text: str, expected: dict[str, str]):
    form = form_of(text)
    assert (form.args, form.fixed) == (expected, {})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python -c 'print(1)' x", "code"),
        ("sed -i 's/a/b/;p' x.txt", "code"),
        ("sed -i 's/a/b/e' x.txt", "code"),
        ("sed -i 's/a.*/[&]/' x.txt", "code"),
        ("sed -i 's/^a.*/b/' x.txt", "old_text"),
        ("ls *.py", "file"),
        ("FOO=$BAR make", "foo"),
        ("for f in *; do rm $f; done", SCRIPT),
        ("echo $(date)", SCRIPT),
        ("echo 'x", SCRIPT),
        ("$X y", SCRIPT),
    ],
)
def test_code_and_what_the_shell_expands_is_filled_in_as_recorded_only(text: str, name: str):
    form = form_of(text)
    template = CommandTemplate(form.text, form.fixed)
    assert name in form.fixed
    template.filled(form.args)
    with pytest.raises(UnsafeValue):
        template.filled({**form.args, name: form.args[name] + " "})


@pytest.mark.parametrize("value", ["-rf", "", "a\nb", "*", "a?", "[x]", "\x00", "a\rb", "\ud800"])
def test_a_value_that_would_change_the_command_is_refused(value: str):
    template = CommandTemplate("rm {{ file }}")
    with pytest.raises(UnsafeValue) as refused:
        template.filled({"file": value})
    assert refused.value.code == "unsafe_value"


def test_a_line_that_ends_the_here_document_is_refused():
    form = form_of("cat > a.txt <<'EOF'\nhi\nEOF")
    for text in ("x\nEOF\nrm x\n", "EOF\n", "x", "x\n\tEOF\n"):
        with pytest.raises(UnsafeValue):
            CommandTemplate(form.text).filled({**form.args, "text": text})
    expanded = form_of("cat > a.txt <<EOF\nhi\nEOF")
    with pytest.raises(UnsafeValue):
        CommandTemplate(expanded.text).filled({**expanded.args, "text": "$(rm x)\n"})


@pytest.mark.parametrize(
    "text",
    [
        "{{ program }} x",
        "git {{ command }}",
        'echo "{{ x }}"',
        "echo '{{ x }}'",
        "python -c {{ code }}",
        "sh -c {{ code }}",
        "echo $({{ x }})",
        "cat <<EOF\nhello {{ x }}\nEOF",
        "echo {{ x }}{{ y }}",
        "echo {{ x | upper }}",
        "echo {{ x }} {{ x }}",
        "echo {% x %}",
        "for f in {{ x }}; do ls; done",
        "python -c {{ code | fixed }}",
        "FOO={{ x }} ls",
        "sed -n{{ x }} p a.txt",
        "rsync --rsh={{ x }} a b",
        "git -c{{ x }} log",
        "export {{ x }}",
        "unset {{ x }}",
        "test -v {{ x }}",
        "read {{ x }}",
        "printf -v {{ x }} a",
        "trap {{ x }} EXIT",
        "env {{ x }}",
        "find . -exec {{ x }} +",
        "xargs {{ x }}",
        "python {{ x }}",
        "python -m{{ x }}",
        "make {{ x }}",
        "sed s/{{ x }}/b/ a",
        "sed s/{{ x | new }}/b/ a",
        "sed 's/{{ x | old }}/b/' a",
        "sed s/a/b/{{ x | new }} a",
        "sed 'p;s/{{ x | old }}/b/' a",
        "echo s/{{ x | old }}/b/",
        "echo 'a {{ x }}",
    ],
)
def test_a_form_whose_blanks_are_no_values_is_refused(text: str):
    with pytest.raises(RoutineError):
        CommandTemplate(text)


# --- with a real shell ----------------------------------------------------------------------------

RECORDED = [
    "show pending orders.csv > report.txt",
    "show -m 'two words' --file=x.txt | show 5",
    'cd . && show a; show "it\'s" b || show c',
    "cat > out.txt <<'EOF'\nhello\nEOF",
    "cat <<EOF > out.txt && show y\nhello\nEOF",
    "show < in.txt 2>&1 a",
    "show <<< word b",
    "X=1 show a",
    "echo hi > a.txt; printf '%s' x; cd here; show -- y",
    "true word && false word; : word; show z",
    "command show a; exec show b",
]
PROGRAMS = ("show", "evil", "rm", "id")
attacks = st.sampled_from(
    [
        "; evil", "&& evil", "| evil", "$(evil)", "`evil`", "\nevil\n", "'; evil; '", '"; evil; "',
        "x' $(evil) '", "\\", "\\'; evil", "> pwned", "$IFS", "${x:-$(evil)}", "!evil", "-x", "--",
        "EOF\nevil\n", "\nEOF\nevil\n", "*", "~", "{a,b}", "#", "a b", "é", "‘; evil’", "；evil",
        "\u2028evil", "\x85evil", "\x1b]0;", "%s", "a[$(evil)]", "x[`evil`]",
        "a\\\nb", "<(evil)", "&", "\\n", "$'\\n'",
    ]
)  # fmt: skip
values = st.one_of(
    attacks,
    st.text(max_size=20),
    st.lists(st.one_of(attacks, st.sampled_from(["a", " ", "'", '"', "\n"])), max_size=4).map(
        "".join
    ),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    (folder / "bin").mkdir()
    for name in PROGRAMS:
        program = folder / "bin" / name
        program.write_text(
            f'#!/bin/bash\nprintf "%s\\0" {name} "$@" $\'\\1\' >> "{folder}/log"\n',
            encoding="utf-8",
        )
        program.chmod(0o755)
    (folder / "bin" / "cat").symlink_to("/bin/cat")
    return folder


def ran(world: Path, text: str) -> list[list[str]]:
    """Run a command in bash; return the programs that ran with their arguments."""
    log, here = world / "log", world / "here"
    log.write_bytes(b"")
    here.mkdir(exist_ok=True)
    for file in here.iterdir():
        file.unlink()
    (here / "in.txt").write_text("in")
    # As em runs them.
    subprocess.run(
        ["/bin/bash", "-c", text],
        cwd=here,
        env={"PATH": str(world / "bin"), "LANG": "C.UTF-8"},
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    calls = log.read_bytes().decode(errors="surrogateescape").split("\0\1\0")
    return sorted(call.split("\0") for call in calls if call)


@settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_no_value_runs_another_program_or_changes_other_words(world: Path, data: st.DataObject):
    form = form_of(data.draw(st.sampled_from(RECORDED)))
    args = {name: data.draw(values, label=name) for name in form.args}
    args |= form.fixed
    if form.text.endswith("EOF") and "text" in args and data.draw(st.booleans()):
        args["text"] += "\n"
    template = CommandTemplate(form.text, form.fixed)
    try:
        text = template.filled(args)
    except UnsafeValue:
        return
    before = set(os.listdir(world))
    done = ran(world, text)
    outputs = {args[name] for name in ("output",) if name in args}
    made = set(os.listdir(world / "here")) - {"in.txt"}
    assert "pwned" not in made - outputs
    assert len(made) <= len(outputs)
    assert set(os.listdir(world)) == before | {"here", "log"}
    recorded = ran(world, template.filled(form.args))
    assert {call[0] for call in done} <= {call[0] for call in recorded}
    assert len(done) <= len(recorded)
    words = {*form.args.values(), *args.values()}
    for call in done:
        for word in call[1:]:
            literal = word in ("-m", "5", "--") or word.startswith("--file=")
            assert literal or word in words


plain = st.text(
    st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12
) | st.sampled_from(
    ["a/b", "1.2.3", "x/e;w pwned", "\\1", "&", "a&b", "[x]", "^a$", "a*", "$(evil)"]
)


@settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(old=plain, new=plain, flag=st.sampled_from(["", "-E"]))
def test_sed_replaces_exactly_the_texts_and_does_nothing_else(
    tmp_path: Path, old: str, new: str, flag: str
):
    form = form_of(f"sed {flag} -i s/1.2.3/1.2.4/g a.txt")
    (tmp_path / "a.txt").write_text(f"<{old}> x <{old}>\n", encoding="utf-8", newline="")
    args = {"old_text": old, "new_text": new, "file": "a.txt"}
    try:
        text = CommandTemplate(form.text).filled(args)
    except UnsafeValue:
        assert "{" in old + new  # what stands behind a brace may crash the parser
        return
    subprocess.run(["bash", "-c", text], cwd=tmp_path, check=True, env={"LANG": "C.UTF-8"})
    found = (tmp_path / "a.txt").read_bytes().decode()
    assert found == f"<{old}> x <{old}>\n".replace(old, new)
    assert os.listdir(tmp_path) == ["a.txt"]
