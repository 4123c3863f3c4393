import attr
from attrs import asdict, define, evolve, field, validators


@define(order=True)
class Row:
    name: str = field(converter=str.strip)
    count: int = field(default=0, validator=validators.ge(0))


def use():
    row = Row(" a ", 2)
    try:
        Row("b", -1)
    except ValueError as error:
        said = str(error)
    return [repr(row), asdict(evolve(row, count=3)), row < Row("b"), said, attr.fields(Row).name.name]
