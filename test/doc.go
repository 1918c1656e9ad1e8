// Package test tests the whole product: real sockets, real processes, real crashes. Tests of single parts are beside
// the parts.
package test
