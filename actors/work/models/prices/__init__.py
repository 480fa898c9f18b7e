"""What models cost: a table of published prices, and what a reply comes to by it.

A price is found by where the model is reached (`api_base`), by the type of its client, or by the client's name, and
then by the model's name; see `find`. What `config.yaml` says of a model goes before the table: `input_price` replaces
all that the table knows of its input, `output_price` all of its output, `cached_input_price` and `cache_write_price`
one rate each. A model without a rate for input and for output is unpriced. That is never 0: its cost is None, and
a run with a cap in money refuses it.

`table.json` is made of the data of genai-prices (https://github.com/pydantic/genai-prices, MIT, see LICENSE here) by
`make prices FROM=<their prices/new_data/v2/data_slim.json> COMMIT=... DAY=...`, and has no more than what is read here.
`callboard models update` puts a newer one into the data directory; of the two the newer counts. The table is read when
the first price is asked for.

    rates     the rates of a model at a time, and the sum for a reply
    table     which provider and which model is meant
    source    genai-prices' file, checked and made into a table
    kept      the two files, and the one that counts
    price     the rates of one model, found when they are wanted
    find      the rates of a model of ours
    update    fetches a newer table
"""
