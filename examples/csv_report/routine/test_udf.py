"""The recorded examples of udf.py, as tests."""

import udf


def test_total_by_1():
    assert udf.total_by(**{'text': 'city,cost\nLisbon,840.5\nPorto,120\nLisbon,99.5\n', 'column': 'city', 'amount': 'cost'}) == {'Lisbon': 940.0, 'Porto': 120.0}
