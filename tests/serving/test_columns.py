"""Raw columns inside the graph, against the encoder of the command line."""

import numpy as np
import pandas as pd
import torch

from bayesdiv.app.data.columns import Encoder
from bayesdiv.serving.graph import Encoded


def test_a_table_is_encoded_as_the_command_line_encodes_it():
    frame = pd.DataFrame(
        {
            "seconds": 1.7e9 + np.arange(6.0),
            "colour": ["red", "green", "green", "blue", "red", "red"],
            "age": [30.0, np.nan, 20.0, 10.0, 50.0, np.nan],
            "town": ["Rome", None, "Oslo", "Oslo", "Rome", "Oslo"],
            "day": pd.to_datetime(["2024-01-01", "2024-02-01", "2024-03-01"] * 2),
        }
    )
    encoder = Encoder.fit(frame)
    columns = encoder.columns
    raw = torch.tensor(
        np.column_stack(
            [
                frame["seconds"],
                frame["colour"].map({"blue": 0, "green": 1, "red": 2}),
                frame["age"],
                frame["town"].map({"Oslo": 0, "Rome": 1}),
                (frame["day"] - pd.Timestamp(0)) / pd.Timedelta(days=1),
            ]
        ).astype(np.float64)
    )
    x, fine = Encoded(columns, [sum(column.width for column in columns)])(raw)
    assert fine.all()
    torch.testing.assert_close(x, encoder.encode(frame), rtol=1e-6, atol=1e-6)
    assert [column.width for column in columns] == [1, 3, 2, 3, 1]
