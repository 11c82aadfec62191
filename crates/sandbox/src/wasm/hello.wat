;; The guest of the self test, of the world `tool`: gives back what it gets. `hello.wasm` is this, assembled; a test compares them.
(component
  (core module $guest
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
    ;; The result is told where it lies: 0 for `ok`, then pointer and length of the text.
    (func (export "run") (param $text i32) (param $bytes i32) (result i32)
      (i32.store8 (i32.const 16) (i32.const 0))
      (i32.store (i32.const 20) (local.get $text))
      (i32.store (i32.const 24) (local.get $bytes))
      i32.const 16))
  (core instance $it (instantiate $guest))
  (func (export "run") (param "input" string) (result (result string (error string)))
    (canon lift (core func $it "run") (memory $it "memory") (realloc (func $it "realloc")))))
