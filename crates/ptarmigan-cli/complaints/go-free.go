// Symptom: page faults and system time of a Go service follow its calls of FreeOSMemory.
// Cure: no FreeOSMemory; GOMEMLIMIT with room.
// Threads: golang/go#42330, golang/go#23687
package main

import (
	"os"
	"runtime/debug"
)

var burst [][]byte

func main() {
	for round := 0; round < 12; round++ {
		for i := 0; i < 24; i++ {
			block := make([]byte, 1<<20)
			for at := 0; at < len(block); at += 4096 {
				block[at] = 1
			}
			burst = append(burst, block)
		}
		burst = nil
		if len(os.Args) < 2 {
			debug.FreeOSMemory()
		}
	}
}
