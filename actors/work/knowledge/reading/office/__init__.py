"""Office files: ZIP archives of XML, read with the standard library.

Complete libraries for these formats (python-docx, openpyxl, python-pptx) load everything at once and depend on lxml.
The text alone needs only a bounded archive, a streaming parser (`package`), and one page of code per format: `texts`,
`sheets`.
"""
