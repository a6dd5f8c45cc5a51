from __future__ import annotations
from mirrored import Mirrored
import time
def test_x(source_cluster, target_cluster, unique):
    m = Mirrored(source_cluster, target_cluster, unique)
    m.produce(500, batch_num_messages=10)
    for i in range(6):
        m.produce(300, batch_num_messages=10)
        with m.copying() as t:
            m.wait(t)
        c = t.task._copies[(m.topic,0)]
        r = t.task._reporter
        print(i, m.target_count(), m.position(), c.position.offset, c.outstanding, len(c._window), c.active, r._dirty, r._runs, t.ledger)
    assert 0
