package resource

// Name is what a definition is called: unique among those of its type. It is a pair and not a joined text, which different pairs
// could share.
type Name struct{ Namespace, Name string }

// NameOf is the name in an object's metadata.
func NameOf(m *ObjectMeta) Name { return Name{m.Namespace, m.Name} }

// String is for messages: namespace/name.
func (n Name) String() string { return n.Namespace + "/" + n.Name }
