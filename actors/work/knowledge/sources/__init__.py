"""Sources: from the lines under `documents:` to the things that can be read.

`specs` says what a word means (file, directory, glob, URL, crawl, loader), `gather` goes through all of them. What
comes out is a `Found`, which the room `reading` reads on demand. `walk` looks on disk; `web` gets pages; `crawl`
follows links, held back by robots.txt, and remembers what it has seen; `loaders` runs other programs. Nothing here
stops at a source that can't be read: it is reported as `Unreadable`, and the others come all the same.
"""
