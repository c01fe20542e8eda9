// Load: a Go program whose eight goroutines fill maps and drop them.
package main

import (
	"fmt"
	"sync"
)

func serve(worker int) int {
	sum := 0
	for request := 0; request < 20; request++ {
		rows := map[int]string{}
		for row := 0; row < 30000; row++ {
			rows[row] = fmt.Sprintf("row %d of %d by %d", row, request, worker)
		}
		sum += len(rows[7])
	}
	return sum
}

func main() {
	var group sync.WaitGroup
	for worker := 0; worker < 8; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			serve(worker)
		}(worker)
	}
	group.Wait()
}
