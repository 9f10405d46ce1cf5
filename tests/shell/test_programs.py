"""What a command does is known from a table; what nobody knows is a write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.errors import UsageError
from em.shell.form import form_of
from em.shell.programs import doing_of, known_programs, read_programs

READS = """
ls -la | grep x | head -5
cat a.txt b.txt 2>/dev/null
find . -name '*.py' -not -path './x/*'
find . -type f -exec grep -l foo {} +
grep -rn "def main" src | sort -u | uniq -c
git status && git log --oneline -5 && git diff HEAD~1 -- a.py
git -C repo show HEAD:README.md
git branch -a
git stash list
GIT_PAGER=cat git diff
sed -n '1,20p' a.txt
awk '{print $1}' a.txt
jq '.items[] | .id' a.json
sh -c 'ls; cat x'
bash -lc "git status"
sudo ls /root
timeout 10 cat x
env LANG=C sort x
find . -name x | xargs -n 1 wc -l
cd app; pwd; echo done
for f in *.py; do wc -l "$f"; done
if [ -f x ]; then cat x; fi
echo "$(git rev-parse HEAD)"
curl -sSL https://example.com/x
python --version
/usr/bin/ls
command -v rm
git reflog
time ls
env
"""

WRITES = """
ls > files.txt
echo x >> log
rm -rf build
sed -i s/a/b/ x
sed -ni.bak p x
sed 's/a/b/w out' x
sed 's|a|b|ge' x
awk '{print > "x"}' y
awk 'BEGIN { system("rm x") }'
find . -delete
find . -exec rm {} ;
find . -name x | xargs rm
sh -c 'ls; rm x'
sh script.sh
sudo rm x
timeout 5 rm x
env rm x
env LD_PRELOAD=x ls
PATH=/tmp ls
sort -o x y
sort --outp=x y
uniq a b
git commit -m x
git push
git branch new
git branch -r -d x
git -c core.pager=evil log
git -ccore.pager=evil log
git log --output=x
rg --pre=evil x
pip install x
python x.py
unknown_program
./run.sh
$PROGRAM x
echo $(rm x)
cat <(rm x)
ls; rm x
ls && rm x
ls & rm x
if true; then rm x; fi
for f in *; do rm $f; done
f() { rm x; }; f
eval "ls"
cat x | tee y
curl -o x https://example.com
curl -X POST https://example.com
xargs -I{} sh -c 'rm {}'
echo 'x
ls <<< $(rm x)
env -S 'rm x'
time -o log ls
command rm x
awk -i inplace '{print}' x
bat --pager=evil x
history -c
go vet -vettool=evil
exec 3<>/dev/tcp/host/80
echo ls | sh
find . -exec sh -c '$1' _ {} ;
echo x | xargs -I % %
xargs -I{} bash -c '{}'
git reflog expire
git remote prune
xargs -I % sh -c 'ls %'
xargs -I% sh -c 'ls %'
xargs --replace=% sh -c 'ls %'
xargs -i sh -c 'ls {}'
find . -exec sh -c 'ls {}' ;
sed -i '' s/a/b/ x
"""


@pytest.mark.parametrize("text", READS.strip().splitlines())
def test_commands_that_only_look_are_reads(text: str):
    done = doing_of(text)
    assert (done.effect, done.reason) == ("read", "")


@pytest.mark.parametrize("text", WRITES.strip().splitlines())
def test_a_command_is_as_bad_as_its_worst_part(text: str):
    done = doing_of(text)
    assert done.effect == "write"
    assert done.reason


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("cp -r src/a.py b.py dest", ("src/a.py", "b.py"), ("dest",)),
        ("sed -i s/a/b/ x.txt", (), ("x.txt",)),
        ("grep -e a x.txt > y.txt", ("x.txt",), ("y.txt",)),
        ("sort < x.txt | tee y.txt", ("x.txt",), ("y.txt",)),
        ("rm a.txt b.txt", (), ("a.txt", "b.txt")),
    ],
)
def test_the_files_of_a_command_are_known(text: str, reads: tuple, writes: tuple):
    done = doing_of(text)
    assert (done.reads, done.writes) == (reads, writes)


def test_all_programs_are_known_also_those_that_others_run():
    done = doing_of("cd x && sudo env A=1 timeout 5 find . -exec sh -c 'cat x | wc' ;")
    assert done.programs == ("cd", "sudo", "env", "timeout", "find", "sh", "cat", "wc")
    assert not doing_of("$X y").is_known
    assert not doing_of("echo 'x").is_known


def test_a_project_can_add_its_own_programs():
    own = read_programs({"deploy": {"commands": {"status": "read"}}, "mytool": "read"}, "em.yaml")
    table = {**known_programs(), **own}
    assert doing_of("mytool x | grep y", table).effect == "read"
    assert doing_of("deploy status prod", table).effect == "read"
    assert doing_of("deploy start prod", table).effect == "write"


@pytest.mark.parametrize("values", [{"ls": "reads"}, {"ls": {"efect": "read"}}, ["ls"], {"a": 1}])
def test_a_wrong_table_is_refused_with_the_way_to_write_it(values: object):
    with pytest.raises(UsageError) as refused:
        read_programs(values, "em.yaml")
    assert "NAME: read" in refused.value.fix


@given(st.text(max_size=60) | st.text("ab $(){}[]<>|&;'\"`\\\n#*?~-=!", max_size=40))
def test_no_text_makes_it_crash(text: str):
    form = form_of(text)
    assert doing_of(text).effect == form.effect
