"""Google's Vertex AI: codecs of Gemini, Claude and open models, addresses, and credentials.

May import `models` (codecs, refreshing credentials) and `actors/io`. Only `login` needs google-auth, and is imported
with the first token of a credentials file.

Five names to know:

    vertex_codec    the codec of a model, by its publisher (`codecs`)
    VertexAccess    paths and headers of requests, with a token or an API key (`codecs`)
    Identity        an access token that is refreshed before it expires (`codecs`)
    source_of       the search for credentials, in the order of Google's own libraries (`location`)
    maker_of        the publisher of a model by its name, also for its price (`location`)

Start with `codecs`.
"""
