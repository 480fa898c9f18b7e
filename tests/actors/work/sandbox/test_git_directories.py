"""Git in a sandbox: its daily work, and what a process may not leave for a later git command outside."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.sandbox_surroundings import World, need, world

ENV = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_{what}": "a@b.example" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(directory: Path, *words: str) -> str:
    """Run git outside of the sandbox."""
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *words], cwd=directory, env=ENV, check=True, capture_output=True
    )
    return done.stdout.decode()


def repository(there: World) -> Path:
    """Make the workspace a repository with two commits."""
    ours = there.workspace
    git(ours, "init", "-q", "-b", "main")
    git(ours, "add", ".")
    git(ours, "commit", "-qm", "first")
    (ours / "second").write_text("2\n")
    git(ours, "add", ".")
    git(ours, "commit", "-qm", "second")
    return ours


def state(*directories: Path) -> dict[str, bytes]:
    """Return all of these git directories but for what git's data is in."""
    free = ("objects", "refs", "logs")
    found = {}
    for top in directories:
        for path in sorted(top.rglob("*")):
            within = path.relative_to(top)
            if within.parts[0] not in free and not any(part in free for part in within.parts[:-1]):
                found[str(path)] = path.read_bytes() if path.is_file() else b""
    return found


async def run(there: World, script: str, **more: object) -> str:
    """Run a script in the sandbox, with git's variables; return what it has printed."""
    names = "".join(f"export {name}={value}; " for name, value in ENV.items() if name.startswith("GIT_"))
    sandbox = there.sandbox(**more)
    done = await there.run(["bash", "-c", names + script], sandbox)
    sandbox.remove()
    assert there.harm(done) == []
    return done.stdout.decode() + done.stderr_tail


WORK = {
    "status": "git status --short && echo x > new && git status --short | grep -q new",
    "add": "echo x > new && git add new && git add -u && git reset -q && git add . && "
    "git diff --cached --stat | grep new",
    "commit": "echo x > new && git add . && git commit -qm third && git commit -q --amend -m again && "
    "git log | grep again",
    "commit of one file": "echo x > new && echo y > second && git add new && git commit -qm third -- second && "
    "git show --stat",
    "checkout": "git checkout -qb other && git checkout -q main && git checkout -q HEAD~1 && git switch -q other "
    "&& git checkout -q main -- second",
    "branch": "git branch other && git branch -m other another && git branch -D another && git tag t && git tag -d t",
    "rebase": "git checkout -qb other HEAD~1 && echo x > new && git add . && git commit -qm third && "
    "git rebase -q main "
    "&& git log --oneline | wc -l | grep 3",
    "interactive rebase": "GIT_SEQUENCE_EDITOR='sed -i s/^pick/reword/' GIT_EDITOR=true git rebase -qi HEAD~1",
    "rebase with a conflict": "git checkout -qb other HEAD~1 && echo x > second && git add . && "
    "git commit -qm third; "
    "git rebase main && exit 1; echo y > second && git add second && GIT_EDITOR=true git rebase --continue "
    "&& git rebase main",
    "an aborted rebase": "git checkout -qb other HEAD~1 && echo x > second && git add . && git commit -qm third; "
    "git rebase main && exit 1; git rebase --abort && test ! -e .git/rebase-merge",
    "merge": "git checkout -qb other HEAD~1 && echo x > new && git add . && git commit -qm third && "
    "git merge -q main -m m",
    "merge with a conflict": "git checkout -qb other HEAD~1 && echo x > second && git add . && git commit -qm third; "
    "git merge main && exit 1; git merge --abort && git status --short",
    "stash": "echo x > second && echo u > new && git stash -q -u && test ! -e new && git stash pop -q && grep x second",
    "cherry-pick": "git checkout -qb other HEAD~1 && git cherry-pick main && git revert --no-edit HEAD",
    "reset": "git reset -q --hard HEAD~1 && git reset -q --soft ORIG_HEAD",
    "worktree add": "git worktree add -q tree -b other && cd tree && echo x > new && git add . && "
    "git commit -qm third "
    "&& git status --short && git checkout -qb more && git -C .. log other | grep third",
    "gc": "git gc -q && git pack-refs --all && git repack -qad && git fsck",
    "fetch": "git clone -q . copy && cd copy && git fetch -q && git pull -q",
    "init and clone": "git init -q new && cd new && git config user.name x && git commit -q --allow-empty -m x",
    "bisect": "git bisect start -q HEAD HEAD~1 && git bisect reset",
    "apply and am": "git format-patch -1 --stdout > patch && git reset -q --hard HEAD~1 && git am -q < patch",
    "notes": "git notes add -m note && git notes show | grep note",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", WORK)
async def test_daily_work_of_git_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        ours = repository(there)
        said = await run(there, f"set -e\n({WORK[name]}) && echo do''ne")
        assert "done" in said, said
        git(ours, "fsck")


# What each script tries to leave in the repository, below `$G`, its git directory.
PLANTS = {
    "change the configuration": "echo '[core] fsmonitor = evil' >> $G/config; git config core.fsmonitor evil",
    "replace the configuration": "echo evil > new; mv -f new $G/config; ln -f new $G/config; cp new $G/config.lock; "
    "mv -f $G/config.lock $G/config",
    "replace the configuration by names that are allowed": "echo evil > $G/index.lock; "
    "mv -f $G/index.lock $G/config; "
    "echo evil > $G/HEAD.lock; mv -f $G/HEAD.lock $G/hooks/pre-commit",
    "config.worktree": "echo evil > $G/config.worktree; echo x > $G/HEAD.lock; mv $G/HEAD.lock $G/config.worktree",
    "commondir": "mkdir evil; echo ../evil > $G/commondir; echo ../evil > new; mv new $G/commondir; "
    "ln -s new $G/commondir",
    "gitdir": "echo ../evil > $G/gitdir",
    "a hook": "echo evil > $G/hooks/pre-commit; mkdir $G/hooks; chmod +x $G/hooks/*; ln -s /tmp/x $G/hooks/post-merge",
    "other hooks": "mv $G/hooks $G/old; rm -rf $G/hooks; mkdir $G/hooks; echo evil > $G/hooks/post-checkout",
    "attributes": "mkdir -p $G/info; echo '* filter=evil' > $G/info/attributes; echo x >> $G/info/exclude; "
    "rm $G/info/*",
    "a module": "mkdir -p $G/modules/new; git init -q --bare $G/modules/new; git init -q $G/modules/other",
    "a name that no git knows": "echo x > $G/unknown; mkdir $G/directory; ln -s / $G/link; mkfifo $G/fifo; touch $G/.x",
    "a tree that is replaced": "mv $G/objects $G/refs/o; ln -s /tmp $G/rebase-merge; rm -rf $G/branches $G/description",
    "the whole directory": "mv $G old; rm -rf $G; mkdir $G; cp -r old $G; rmdir $G",
    "dots": "mkdir $G/rebase-merge; echo x > $G/rebase-merge/../config; echo x > $G/refs/../commondir; "
    "cd $G/refs && echo x > ../gitdir; rm -rf $G/rebase-merge",
    "links that lead out of a tree": "mkdir $G/rebase-merge; ln -s ../config $G/rebase-merge/l; "
    "echo x > $G/rebase-merge/l; "
    "ln -s ../hooks $G/refs/l; echo x > $G/refs/l/x; rm -rf $G/rebase-merge",
    "a link at an allowed name": "ln -s config $G/COMMIT_EDITMSG; echo evil > $G/COMMIT_EDITMSG; "
    "rm -f $G/index.lock; ln -s config $G/index.lock; echo evil > $G/index.lock",
    "a linked worktree that was there": "echo x > $G/worktrees/w/config.worktree; "
    "echo ../evil > $G/worktrees/w/commondir; "
    "rm -f $G/worktrees/w/commondir; rm -rf $G/worktrees/w; mv $G/worktrees/w $G/worktrees/v; "
    "echo x > $G/worktrees/w/gitdir",
    "a hook of a submodule": "echo evil > $G/modules/s/hooks/pre-commit; echo evil >> $G/modules/s/config; "
    "echo x > $G/modules/s/commondir; echo x > $G/modules/s/config.worktree; mv $G/modules/s $G/modules/t",
    "modes": "chmod +x $G/hooks/*; chmod 000 $G/config; touch -d 2001-01-01 $G/config",
    "bind mounts": "mount --bind /tmp $G/hooks; umount $G; umount -l $G; mount -o remount,rw $G; echo x > $G/config",
}
SWAP = """
import os, threading
G = os.environ['G']
open('code', 'w').write('evil')
def change():
    for n in range(3000):
        os.symlink(G if n % 2 else 'own', f'new{n}'); os.rename(f'new{n}', 'way')
os.mkdir('own')
thread = threading.Thread(target=change); thread.start()
while thread.is_alive():
    for name in ('config', 'commondir', 'index.lock/../commondir'):
        try: open(f'way/{name}', 'w').write('evil')
        except OSError: pass
        try: os.rename('code', f'way/{name}')
        except OSError: pass
"""
DAMAGE = "mkdir objects refs; git config -f config core.worktree .; git config -f config core.fsmonitor 'touch evil'; "
DAMAGE += "echo ref: refs/heads/main > HEAD; "
DAMAGES = {
    "remove HEAD": "rm -f $G/HEAD; mv $G/HEAD $G/index.old; mv $G/HEAD $G/HEAD.lock",
    "damage HEAD": "echo x > $G/HEAD; echo x >> $G/HEAD; : > $G/HEAD; echo x > $G/HEAD.lock; "
    "mv -f $G/HEAD.lock $G/HEAD",
    "damage HEAD by a descriptor": "exec 3<>$G/HEAD.lock; cat $G/HEAD >&3; mv -f $G/HEAD.lock $G/HEAD; echo evil >&3",
    "exchange HEAD": "echo x > $G/index.x; python3 -c \"import ctypes, os; g = os.environ['G'].encode(); "
    "ctypes.CDLL(None).renameat2(-100, g + b'/index.x', -100, g + b'/HEAD', 2)\"",
    "modes": "chmod 000 $G/refs $G/objects $G; cd $G/refs; chmod 000 .; setfacl -m u::- .",
    "remove what git looks for": "rm -rf $G/refs $G/objects; mv $G/refs $G/objects/; rmdir $G/objects",
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.sample(2)
async def test_no_damage_makes_git_take_the_workspace_for_a_bare_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        ours = repository(there)
        modes = [(ours / ".git" / each).stat().st_mode for each in ("refs", "objects", "HEAD", "")]
        await run(there, f"export G={ours}/.git\n{DAMAGE}{DAMAGES[name]}")
        assert [(ours / ".git" / each).stat().st_mode for each in ("refs", "objects", "HEAD", "")] == modes
        assert git(ours, "rev-parse", "--absolute-git-dir").strip() == f"{ours}/.git"
        subprocess.run(["git", "status"], cwd=ours, env=ENV, check=False, capture_output=True)
        assert not (ours / "evil").exists()


PLANTS["a link that is swapped meanwhile"] = f'python3 -c "{SWAP}"'


def with_worktree_and_submodule(there: World, tmp_path: Path) -> Path:
    """Make the workspace a repository that has both."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "x")
    ours = repository(there)
    git(ours, "submodule", "--quiet", "add", str(other), "s")
    git(ours, "commit", "-qm", "third")
    git(ours, "worktree", "add", "-q", "w")
    return ours


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", PLANTS)
async def test_a_git_directory_is_not_changed_but_for_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        ours = with_worktree_and_submodule(there, tmp_path)
        before = state(ours / ".git")
        modes = {path: Path(path).lstat().st_mode for path in before}
        script = f"export G={ours}/.git\n{PLANTS[name]}\ncd {ours}; rm -f .git/*.lock; echo do''ne"
        said = await run(there, script)
        assert "done" in said
        after = state(ours / ".git")
        # Names that are git's data may have been written or removed; nothing else is new or different.
        data = ("index", "ORIG_HEAD", "COMMIT_EDITMSG", "packed-refs", "rebase-merge", "git-rebase-todo", "l")
        changed = {Path(path) for path in {*before, *after} if before.get(path) != after.get(path)}
        assert {
            path for path in changed if path.name not in data and path.name not in ("logs", "refs", "objects")
        } == set()
        modes = {path: mode for path, mode in modes.items() if path in after}
        assert {path: Path(path).lstat().st_mode for path in modes} == modes
        if name not in ("a tree that is replaced", "the whole directory"):  # these have removed data
            git(ours, "status")


FORMS = {
    "a linked worktree": ("w", [".git/config", ".git/hooks/post-commit", ".git/worktrees/w/commondir"]),
    "a submodule": ("s", [".git/config", ".git/modules/s/config", ".git/modules/s/hooks/post-commit"]),
    "a repository with its directory elsewhere": ("separate", ["git/config", "git/commondir", "git/hooks/x"]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("inside", [True, False], ids=["in the workspace", "as the workspace"])
@pytest.mark.sample(2)
async def test_a_file_that_names_a_git_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, inside: bool
) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        ours = with_worktree_and_submodule(there, tmp_path)
        (ours / "separate").mkdir()
        git(ours / "separate", "init", "-q", f"--separate-git-dir={ours}/git")
        git(ours / "separate", "commit", "-q", "--allow-empty", "-m", "x")
        place, targets = FORMS[form]
        if inside and place == "separate":
            pytest.skip("a directory deeper in the workspace, which nothing at its top names")
        here = ours / place
        files = [here / ".git", *(ours / each for each in targets)]
        before = [path.read_bytes() if path.exists() else b"" for path in files]
        plant = "".join(f"echo evil > {path}; mv -f new {path}; " for path in files) + f"mkdir -p {ours}/.git/info"
        work = "echo x > new && git add . && git commit -qm sandboxed && git checkout -qb more"
        said = await run(there, f"cd {here}; {plant}; {work}", here=ours if inside else here)
        assert [path.read_bytes() if path.exists() else b"" for path in files] == before
        if form == "a repository with its directory elsewhere":
            return  # it does not name its working tree, so only a workspace that holds it could be worked in
        assert "sandboxed" in git(here, "log"), said
        assert git(here, "status", "--short") == ""


async def test_a_file_that_names_the_repository_of_others_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        other = tmp_path / "others"
        other.mkdir()
        git(other, "init", "-q")
        git(other, "commit", "-q", "--allow-empty", "-m", "x")
        git(other, "worktree", "add", "-q", "w")
        before = state(other / ".git")
        for target in (other / ".git", other / ".git/worktrees/w"):
            (there.workspace / ".git").write_text(f"gitdir: {target}\n")
            await run(there, f"echo evil > {target}/HEAD; rm {target}/HEAD; git commit -q --allow-empty -m evil")
            assert state(other / ".git") == before
            assert "evil" not in git(other, "log", "--all")


async def test_a_bare_repository_as_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        git(there.workspace, "init", "-q", "--bare")
        config = (there.workspace / "config").read_bytes()
        await run(there, "echo evil >> config; echo evil > commondir; echo evil > hooks/post-update; git branch x")
        assert (there.workspace / "config").read_bytes() == config
        assert not (there.workspace / "commondir").exists()
        assert not (there.workspace / "hooks/post-update").exists()
