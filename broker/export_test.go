package broker

// ClientAddr returns the address at which a member's server listens for clients.
func (b *Broker) ClientAddr() string { return b.server().Addr().String() }

// Repair closes the store and opens it again.
func (b *Broker) Repair() error {
	b.repairing.Lock()
	defer b.repairing.Unlock()
	return b.repair()
}

// Repairs returns whether the store was ever opened again.
func (b *Broker) Repairs() bool {
	b.repairing.Lock()
	defer b.repairing.Unlock()
	return !b.repaired.IsZero()
}

// Close closes the store, as the server does when the disk is full.
func (b *Broker) Close() error { return b.server().ShutdownJetStream() }
