"""How much to build on a source, guessed from where it is published."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import unquote, urlsplit

TIERS = {
    "standard": "a standards body: carries a statement about its standards alone",
    "official": "a public authority: carries a statement about its own field alone",
    "reviewed": "published work, reviewed in all likelihood",
    "academic": "a university or institute: usually sound, not necessarily reviewed",
    "preprint": "not yet reviewed: needs a second source",
    "encyclopedia": "good for finding one's way; cite the sources that it names",
    "organization": "an organization: sound about itself, look for its interests",
    "forum": "anybody may write there: needs a second source",
    "unverified": "nothing is known about it: needs a second source",
}
"""What each tier means."""

SITES = {
    "standard": "ietf.org rfc-editor.org w3.org whatwg.org iso.org iec.ch itu.int ieee.org unicode.org "
    "ecma-international.org etsi.org oasis-open.org nist.gov",
    "official": "europa.eu un.org who.int worldbank.org oecd.org imf.org admin.ch bund.de gc.ca",
    "reviewed": "doi.org nature.com science.org cell.com thelancet.com nejm.org bmj.com pnas.org plos.org aps.org "
    "acm.org ieeexplore.ieee.org sciencedirect.com link.springer.com onlinelibrary.wiley.com academic.oup.com "
    "cambridge.org jstor.org ncbi.nlm.nih.gov pubmed.ncbi.nlm.nih.gov cochranelibrary.com",
    "academic": "cern.ch mpg.de cnrs.fr",
    "preprint": "arxiv.org biorxiv.org medrxiv.org chemrxiv.org ssrn.com osf.io preprints.org researchsquare.com "
    "hal.science",
    "encyclopedia": "wikipedia.org britannica.com scholarpedia.org",
    "forum": "reddit.com quora.com x.com twitter.com facebook.com linkedin.com medium.com substack.com wordpress.com "
    "blogspot.com stackoverflow.com stackexchange.com news.ycombinator.com youtube.com tiktok.com github.io",
}
TIER_OF = {site: tier for tier, sites in SITES.items() for site in sites.split()}
"""The longest entry that a host ends with decides."""

ENDINGS = (
    ("official", re.compile(r"\.(gov|mil|gouv|govt|gob|go)(\.[a-z]{2})?$")),
    ("academic", re.compile(r"\.(edu|edu\.[a-z]{2}|ac\.[a-z]{2})$")),
    ("organization", re.compile(r"\.(org|int|ngo|org\.[a-z]{2}|or\.[a-z]{2})$")),
)
"""In a country's domain only as the second part of the name: `x.ac.uk`, not `x.ac.example.com`."""

PREPRINTS = re.compile(r"/?10\.(48550/|1101/\d|2139/ssrn|26434/|31219/|20944/|21203/)", re.IGNORECASE)
"""How the DOIs of servers of preprints begin."""


def classify_sources(sources: list[str]) -> list[dict[str, str]]:
    """Tell the tier of each source, guessed from its address alone; nothing is looked up.

    Args:
        sources: URLs and DOIs, all at once.
    """
    found = []
    for source in dict.fromkeys(source.strip() for source in sources):
        host, path = _parts(source)
        tier = _tier(host, path)
        found.append({"source": source, "host": host, "tier": tier, "meaning": TIERS[tier]})
    return found


def _parts(source: str) -> tuple[str, str]:
    """The host in small letters, "" if there is none, and the path. A bare DOI is where DOIs lead."""
    doi = re.match(r"(?:doi:\s*)?(10\.\d{4,9}/.*)", source, re.IGNORECASE)
    if doi:
        return "doi.org", "/" + doi[1]
    try:
        parts = urlsplit(source if "://" in source else "https://" + source)
        host = parts.hostname or ""
    except ValueError:
        return "", ""
    return host.rstrip("."), parts.path


def _tier(host: str, path: str) -> str:
    if _is_address(host):
        return "unverified"
    labels = host.split(".")
    for at in range(len(labels) - 1):
        tier = TIER_OF.get(".".join(labels[at:]))
        if tier is not None:
            return "preprint" if host.endswith("doi.org") and PREPRINTS.match(unquote(path)) else tier
    return next((tier for tier, ending in ENDINGS if ending.search("." + host)), "unverified")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
