from datetime import date

from marshmallow import Schema, ValidationError, fields, validate


class Row(Schema):
    name = fields.Str(required=True)
    mail = fields.Email()
    day = fields.Date()
    n = fields.Int(validate=validate.Range(min=1))


def use():
    try:
        Row().load({"mail": "x", "n": 0})
    except ValidationError as error:
        wrong = error.messages
    return [wrong, str(Row().load({"name": "a", "day": "2026-11-29"})), Row().dump({"name": "b", "day": date(2026, 1, 2)})]
