"""Model prices: a table of published prices, and the cost of a reply.

The provider is found by the address of the client (`api_base`), by its type, or by its name. Its list contains the
price by the model's name; see `price_lookup`. Prices in `config.yaml` take precedence over the table. `input_price`
replaces all input rates of the table, `output_price` all output rates, `cached_input_price` and `cache_write_price` one
rate each. A model without a rate for input or output is unpriced. Its cost is None, never 0, and a run with a limit in
money refuses it.

`make prices FROM=<their prices/new_data/v2/data_slim.json> COMMIT=... DAY=...` creates `table.json` from the data of
genai-prices (https://github.com/pydantic/genai-prices, MIT, see LICENSE in this directory). It contains only the fields
that this package reads. `callboard models update` writes a newer table to the data directory; the newer of the two is
used. The table is loaded with the first price lookup.

    table           providers, models with their rates, the match of names, and the cost of a reply
    genai_prices    genai-prices' file, validated and converted to a table; creation of `table.json`
    price           price of one model, looked up on first use
    price_lookup    lookup of a configured model in the table in use, which is the package's or an updated one
    update          download of a newer table; Loki's `models.yaml`, merged into the table

May import `protocol`, `actors/io` and `vertex.location`. Start with `price_lookup`.
"""
