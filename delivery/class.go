package delivery

// Class says how much a delivery matters under overload. Lower numbers go first, and are shed last.
type Class int

// The classes of deliveries.
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
func (d *Delivery) Class() Class {
	switch {
	case d.Check == "":
		return MetricsOnly
	case !d.Repeats:
		return Change
	case d.Status != 0:
		return Failing
	}
	return Unchanged
}
