-- Load: a Haskell program, run with a heap that copies, which builds tables and drops them.
module Main (main) where

import Control.Exception (evaluate)
import Control.Monad (forM_, when)
import qualified Data.Map.Strict as Map

request :: Int -> IO Int
request n = evaluate (sum (Map.elems (Map.fromList [(i * 7919 `mod` 150001, i + n) | i <- [1 .. 150000]])))

main :: IO ()
main = forM_ [1 .. 15] $ \n -> do
  total <- request n
  when (total == 0) $ print n
