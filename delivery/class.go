package delivery

// Class says how much an event matters under overload. Lower numbers go first, and are shed last.
type Class uint8

// The classes of events.
const (
	Change      Class = iota // the status, the flapping or the silencing is another than before; never shed
	Failing                  // fails as before
	Unchanged                // passes as before
	MetricsOnly              // has no check
	Classes     = iota
)

var classNames = [Classes]string{"change", "failing", "unchanged", "metrics"}

// String returns the class as metrics and logs name it.
func (c Class) String() string { return classNames[c] }

// Class returns the delivery's class. A delivery that an earlier release stored is a Change.
func (d *Delivery) Class() Class { return ClassOf(d.Check, d.Repeats, d.Status) }

// ClassOf returns the class of an event of a check, "" for none. It repeats if it changed nothing of its pair.
func ClassOf(check string, repeats bool, status uint32) Class {
	switch {
	case check == "":
		return MetricsOnly
	case !repeats:
		return Change
	case status != 0:
		return Failing
	}
	return Unchanged
}
