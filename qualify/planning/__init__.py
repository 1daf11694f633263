"""Campaign -> Plan: sides, cells, order, identity and an estimate; nothing is started here."""
