"""Secrets that stand in no other file: `{{NAME}}` in configuration means the vault's NAME.

    vault = Vault(settings.vault, config_dir, os.environ, kernel)   # `vault`: what a process has of it
    vault.get("GITHUB_TOKEN")                                       # its value, else the environment's
    await vault.fetch(["GITHUB_TOKEN"])                             # where that takes time; then `get` has it

There are two kinds. A file of ours (`file`) is encrypted by age (`age`), so that age's own programs can open it:
`{"version": 1, "secrets": {"NAME": "value"}}`. What opens it (`openers`) is a file with an identity, which is made at
the first use; a passphrase; or an identity in the system's keyring. Or another program has the secrets (`command`),
which is run once for each that is needed.

What is handed out, `handed_out` takes out of all that is written or sent from then on. Nothing here logs.
"""
