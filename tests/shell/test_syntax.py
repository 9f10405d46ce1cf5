"""Commands are parsed into the parts that bash itself sees."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from em.shell.syntax import Opaque, parse
from strategies import examples


def words(text: str) -> list[list[str]]:
    return [[word.shown for word in command.words] for command in parse(text).commands]


def test_programs_and_arguments_are_found_with_how_they_are_joined():
    script = parse("cd app && git log -5 | head; ls || true & wait")
    assert [(c.join, c.words[0].value) for c in script.commands] == [
        ("", "cd"),
        ("&&", "git"),
        ("|", "head"),
        (";", "ls"),
        ("||", "true"),
        ("&", "wait"),
    ]
    assert script.is_flat


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"touch a\ b", ["touch", "a b"]),
        ("touch 'a b'", ["touch", "a b"]),
        (
            'git commit -m "it\'s \\"done\\" for \\$5"',
            ["git", "commit", "-m", 'it\'s "done" for $5'],
        ),
        ("echo a'b c'\"d\"e", ["echo", "ab cde"]),
        ("echo --file='x y'", ["echo", "--file=x y"]),
        ("cat > out.txt a b", ["cat", "a", "b"]),
        ("> out.txt cat a", ["cat", "a"]),
        ("echo a # b", ["echo", "a"]),
        ("m \"$(cat <<'EOF'\nfirst $x\n\nsecond\nEOF\n)\"", ["m", "first $x\n\nsecond"]),
    ],
)
def test_words_are_what_the_program_gets(text: str, expected: list[str]):
    assert words(text) == [expected]


@pytest.mark.parametrize(
    "word",
    ["*.py", "~/x", "$HOME", '"$HOME"', "{a,b}", "$(date)", "`date`", "a?c", "$'x\\n'", '"$"'],
)
def test_a_word_that_the_shell_works_out_has_no_value(word: str):
    command = parse(f"echo {word}").commands[-1]
    assert (command.words[1].text, command.words[1].value) == (word, None)


def test_redirects_have_their_files():
    command = parse("sort < in.txt 2>/dev/null > out.txt 2>&1").commands[0]
    assert [
        (one.operator, one.target.shown, one.reads, one.writes) for one in command.redirects
    ] == [
        ("<", "in.txt", True, False),
        ("2>", "/dev/null", False, False),
        (">", "out.txt", False, True),
        ("2>&", "1", False, False),
    ]


def test_a_here_document_has_its_lines_and_whether_they_are_expanded():
    quoted = parse("cat > a.txt <<'EOF' && ls\nhello $x\nEOF").commands
    assert [command.words[0].value for command in quoted] == ["cat", "ls"]
    here = quoted[0].redirects[1]
    assert (here.body.value, here.end, here.is_quoted) == ("hello $x\n", "EOF", True)
    open_ = parse("cat <<EOF\nhello $x\nEOF").commands[0].redirects[0]
    assert (open_.body.value, open_.is_quoted) == (None, False)


def test_programs_in_substitutions_loops_and_functions_are_found():
    script = parse("f() { rm x; }; for i in $(seq 3); do echo `date` > y; done; [ -f x ] && f")
    assert [c.words[0].value for c in script.commands] == ["rm", "seq", "date", "echo", "f"]
    assert not script.is_flat


@pytest.mark.parametrize(
    "text", ["", "  ", "echo 'x", "echo $(", "a && ", "edit 1:1\nx = (\nend", "ls\0", "ls\r\nrm x"]
)
def test_what_is_no_command_is_opaque(text: str):
    with pytest.raises(Opaque):
        parse(text)


def test_a_very_long_or_deep_command_is_opaque():
    with pytest.raises(Opaque):
        parse("echo " + "x" * 200_000)
    with pytest.raises(Opaque):
        parse("$(" * 200 + "ls" + ")" * 200)


@pytest.mark.parametrize("start", ["{", "{1", "{12..", "{1..2", "echo a{3.."])
@pytest.mark.parametrize("character", ["\u0100", "\uffff", "\U000f0000", "\U0010ffff"])
def test_a_character_at_which_the_parser_may_crash_is_not_given_to_it(start: str, character: str):
    """It looked such a character up in a table of 256: whether it crashed was chance."""
    with pytest.raises(Opaque):
        parse(f"{start}{character}")


def test_other_characters_behind_a_brace_and_elsewhere_are_read():
    assert words("echo {ü,b} 日本 a-日 '{\"日\": 1}'")[0][0] == "echo"


pieces = st.sampled_from(
    [
        "a",
        "b.txt",
        "'c d'",
        '"e f"',
        r"g\ h",
        "--x=1",
        "-n",
        "'it'\\''s'",
        '"q\\"r"',
        "ü",
        "1",
        "#x",
    ]
)
simple = st.lists(pieces, max_size=4).map(lambda found: " ".join(["show", *found]))
joined = st.lists(
    st.tuples(simple, st.sampled_from([" && ", "; ", " | ", " || ", "\n", " &&\n"])),
    min_size=1,
    max_size=4,
).map(lambda parts: "".join(a + b for a, b in parts[:-1]) + parts[-1][0])


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(joined)
def test_bash_sees_the_same_programs_and_words(tmp_path: Path, text: str):
    log = tmp_path / "log"
    log.write_bytes(b"")
    shown = f'show() {{ printf "%s\\0" show "$@" E >> {shlex.quote(str(log))}; false; }}\n'
    # Every program fails and `||` follows `&&` nowhere: run all of them in their order.
    plain = text.replace("&&", ";").replace("||", ";").replace("|", ";")
    subprocess.run(["bash", "-c", shown + plain], check=False, cwd=tmp_path)
    seen = [part.split("\0") for part in log.read_text().removesuffix("\0E\0").split("\0E\0")]
    assert words(text) == [one for one in seen if one != [""]]


class _Sliced(bytes):
    """Bytes that count how many of them were taken out of the whole."""

    taken = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        _Sliced.taken += len(found) if isinstance(found, bytes) else 1
        return found


class _Text(str):
    __slots__ = ()

    def encode(self, *args: str) -> bytes:
        return _Sliced(super().encode(*args))


@pytest.mark.parametrize("part", ["--option=value ", '"two words" ', "| grep a ", "> é.txt "])
def test_reading_a_command_costs_in_proportion_to_its_length(part: str):
    taken = []
    for size in (50, 500):
        _Sliced.taken = 0
        parse(_Text(f"make {part * size}"))
        taken.append(_Sliced.taken)
    assert taken[1] < 11 * taken[0]


@pytest.mark.parametrize(
    "text", ["(" * 5_000 + "ls" + ")" * 5_000, "echo " + "$(" * 3_000 + "ls" + ")" * 3_000]
)
def test_what_is_nested_too_deeply_is_opaque(text: str):
    with pytest.raises(Opaque):
        parse(text)
