"""Sources of knowledge bases: find the readable items that the entries of `documents:` name.

`specs` parses an entry (file, directory, glob, URL, crawl, loader), and `gather` iterates over all of them. It yields
`FoundSource` objects, which the subpackage `reading` reads on demand. `walk` searches the disk, and `web` fetches
pages. A crawl follows links within the limits of robots.txt, and records its progress. `loaders` runs other programs.
An unreadable source never stops the search: it is reported as `Unreadable`, and the others are still found.
"""
