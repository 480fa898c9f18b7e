"""Secret storage: `{{NAME}}` in configuration means the vault's NAME.

    vault = Vault(settings.vault, config_dir, os.environ, kernel)   # `vault`: the vault of a process
    vault.get("GITHUB_TOKEN")                                       # its value, else the environment's
    await vault.fetch(["GITHUB_TOKEN"])                             # if that takes time; then `get` has it

There are two kinds. A file of Callboard's (`file`) is encrypted by age (`age`), so that age's own programs can decrypt
it: `{"version": 1, "secrets": {"NAME": "value"}}`. Its key (`keys`) is an identity in a file, which is created at
the first use; a passphrase; or an identity in the system's keyring. Alternatively another program stores the secrets
(`vault.VaultCommand`), and runs once for each that is needed.

`io.secret_redaction` redacts the returned values in all later output. Nothing here logs.
"""
