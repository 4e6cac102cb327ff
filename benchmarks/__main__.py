"""`make bench`: every measured claim, one after the other."""

import benchmarks.batching
import benchmarks.overhead
import benchmarks.stack

benchmarks.overhead.main()
print()
benchmarks.stack.main()
print()
benchmarks.batching.main()
