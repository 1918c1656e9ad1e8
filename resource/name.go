package resource

// Name is a definition's key among those of its type. It is a pair because different pairs could join to the same text.
type Name struct{ Namespace, Name string }

// NameOf returns the name in an object's metadata.
func NameOf(m *ObjectMeta) Name { return Name{m.Namespace, m.Name} }

// String returns namespace/name, for messages.
func (n Name) String() string { return n.Namespace + "/" + n.Name }
