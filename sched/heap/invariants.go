package heap

import "fmt"

// Check returns an error when an element is ahead of its parent or does not know its index. It is for tests.
func (h Heap[T]) Check() error {
	for i, v := range h {
		if v.HeapIndex() != i {
			return fmt.Errorf("heap: the element at %d thinks it is at %d", i, v.HeapIndex())
		}
		if i > 0 && v.Ahead(h[(i-1)/2]) {
			return fmt.Errorf("heap: the element at %d is ahead of its parent", i)
		}
	}
	return nil
}
