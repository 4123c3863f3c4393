import io

from openpyxl import Workbook, load_workbook
from openpyxl.styles import Font


def use():
    book = Workbook()
    sheet = book.active
    sheet.append(["name", "n"])
    sheet.append(["ä", 2])
    sheet["C1"] = "=SUM(B2:B2)"
    sheet["A1"].font = Font(bold=True)
    out = io.BytesIO()
    book.save(out)
    read = load_workbook(io.BytesIO(out.getvalue())).active
    return [[list(row) for row in read.iter_rows(values_only=True)], read["A1"].font.bold, read.dimensions]
