package graphite

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

// unpickle reads the opcodes of the recorded pickles and of our own. It panics on others.
func unpickle(b []byte) (v any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	type mark struct{}
	var stack []any
	var memo []any
	next := func(n int) []byte { part := b[:n]; b = b[n:]; return part }
	push := func(v any) { stack = append(stack, v) }
	pop := func() any { v := stack[len(stack)-1]; stack = stack[:len(stack)-1]; return v }
	sinceMark := func() []any {
		for i := len(stack) - 1; ; i-- {
			if _, ok := stack[i].(mark); ok {
				items := stack[i+1:]
				stack = stack[:i]
				return items
			}
		}
	}
	extend := func(items []any) { l := pop().(*[]any); *l = append(*l, items...); push(l) }
	set := func(items []any) {
		d := pop().(map[string]any)
		for i := 0; i < len(items); i += 2 {
			d[items[i].(string)] = items[i+1]
		}
		push(d)
	}
	for {
		switch op := next(1)[0]; op {
		case 0x80:
			next(1)
		case 0x95:
			next(8)
		case 0x94:
			memo = append(memo, stack[len(stack)-1])
		case 'h':
			push(memo[next(1)[0]])
		case 'j':
			push(memo[binary.LittleEndian.Uint32(next(4))])
		case ']':
			push(&[]any{})
		case '}':
			push(map[string]any{})
		case '(':
			push(mark{})
		case 'e':
			extend(sinceMark())
		case 'a':
			extend([]any{pop()})
		case 'u':
			set(sinceMark())
		case 's':
			value := pop()
			set([]any{pop(), value})
		case 0x86:
			second := pop()
			push([]any{pop(), second})
		case 'N':
			push(nil)
		case 0x88, 0x89:
			push(op == 0x88)
		case 'K':
			push(int64(next(1)[0]))
		case 'M':
			push(int64(binary.LittleEndian.Uint16(next(2))))
		case 'J':
			push(int64(int32(binary.LittleEndian.Uint32(next(4)))))
		case 'G':
			push(math.Float64frombits(binary.BigEndian.Uint64(next(8))))
		case 'X':
			push(string(next(int(binary.LittleEndian.Uint32(next(4))))))
		case 0x8c:
			push(string(next(int(next(1)[0]))))
		case '.':
			return flat(pop()), nil
		default:
			return nil, fmt.Errorf("opcode %#x", op)
		}
	}
}

// flat replaces pointers to lists by the lists.
func flat(v any) any {
	switch v := v.(type) {
	case *[]any:
		for i := range *v {
			(*v)[i] = flat((*v)[i])
		}
		return *v
	case map[string]any:
		for k := range v {
			v[k] = flat(v[k])
		}
	}
	return v
}

func TestPickle(t *testing.T) {
	rec := readRecording(t, "testdata/recorded.json")
	a := newAPI(t, newStore(t, rec), nil)
	same := 0
	for i := range rec.Answers {
		r := &rec.Answers[i]
		if r.Type != "application/pickle" || r.different() != "" {
			continue
		}
		b, err := base64.StdEncoding.DecodeString(r.Answer64)
		if err != nil {
			t.Fatal(err)
		}
		want, err := unpickle(b)
		if err != nil {
			if strings.HasPrefix(r.URL, "/metrics/find") {
				continue // objects of graphite-web's classes
			}
			t.Fatalf("%s: %v", r.URL, err)
		}
		got, err := unpickle(do(a, r.Method, r.URL, "", "").Body.Bytes())
		if err != nil || !reflect.DeepEqual(normal(got), normal(want)) {
			t.Errorf("%s\ngot  %v %v\nwant %v", r.URL, got, err, want)
		}
		same++
	}
	if same < 10 {
		t.Errorf("only %d pickles were compared", same)
	}
	got, err := unpickle(do(a, "GET", "/metrics/find?query=top&format=pickle", "", "").Body.Bytes())
	want := []any{map[string]any{"path": "top", "is_leaf": true,
		"intervals": []any{[]any{int64(1699990400), 1700000400.0}}}}
	if err != nil || !reflect.DeepEqual(got, any(want)) {
		t.Errorf("a leaf: %v %v", got, err)
	}
}
