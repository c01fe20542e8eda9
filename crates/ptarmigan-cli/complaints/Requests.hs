-- Symptom: a Haskell service is slower than it has to be, in collections and in the kernel.
-- Cure: a larger allocation area, GHCRTS=-A64m, so that the heap neither shrinks nor grows again.
-- Threads: argotorg/hevm#1047, commercialhaskell/stack#3435, crytic/echidna#1228
module Main (main) where

import Control.Concurrent (threadDelay)
import Control.Exception (evaluate)
import Control.Monad (forM_, when)
import qualified Data.Map.Strict as Map
import System.Mem (performMajorGC)

-- A request builds a table that is garbage at its end.
request :: Int -> IO Int
request n = evaluate (sum (Map.elems (Map.fromList [(i, i + n) | i <- [1 .. 120000]])))

main :: IO ()
main = forM_ [1 .. 25] $ \n -> do
  total <- request n
  when (total == 0) $ print n
  -- As the runtime does when a service is idle.
  performMajorGC
  threadDelay 10000
