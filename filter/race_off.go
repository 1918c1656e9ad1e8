//go:build !race

package filter

const memoryFactor = 1
