"""Office files: ZIP archives of XML, read with what Python brings.

The libraries that know these formats whole (python-docx, openpyxl, python-pptx) load everything at once and bring lxml
with them; for the text alone, a bounded archive and a parser that streams (`package`) and a page of code for each
format do: `texts`, `sheets`.
"""
