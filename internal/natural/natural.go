// Package natural orders names with the numbers in them by value: web9 before web10, 6.9 before 6.12.
package natural

import "strings"

// Key returns a name with its numbers padded to ten digits.
func Key(name string) string {
	const width = 10
	var b strings.Builder
	for i := 0; i < len(name); {
		j := i
		for j < len(name) && name[j] >= '0' && name[j] <= '9' {
			j++
		}
		if j == i {
			b.WriteByte(name[i])
			i++
			continue
		}
		for range width - (j - i) {
			b.WriteByte('0')
		}
		b.WriteString(name[i:j])
		i = j
	}
	return b.String()
}
