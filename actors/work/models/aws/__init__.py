"""Amazon Bedrock: codec, credentials and request signing.

May import `models` (codec, reasoning, refreshing credentials) and `actors/io`. Credentials in the order in which they
are tried: keys of the client, its profile, a service account, a role of the container or machine.

Five names to know:

    BedrockCodec       Converse, one format for all models, with cache points (`bedrock`)
    signer_of          the signer of a client, from the credentials above (`credential_chain`)
    Signer             Signature Version 4 (`keys`)
    ProfileRole        temporary keys of a profile: a role, SSO, or a program (`credential_chain`)
    AssumedRole        temporary keys of this container or machine (`roles`)

Start with `signer_of` for credentials, with `BedrockCodec` for the format.
"""
