# callboard: completion for elvish

use str

fn callboard-complete {|@words|
  if (eq $words[0] loki) {
    set words = [callboard $@words]
  }
  tmp E:_CALLBOARD_COMPLETE = words_complete
  try {
    e:callboard (all $words[1..]) 2>/dev/null | from-lines | each {|line|
      var kind value about = (str:split &max=3 "\t" $line)
      if (eq $kind plain) {
        var shown = $value
        if (not-eq $about '') {
          set shown = $value'  -- '$about
        }
        edit:complex-candidate $value &display=$shown
      } else {
        edit:complete-filename $words[-1]
      }
    }
  } catch _ { }
}

set edit:completion:arg-completer[callboard] = $callboard-complete~
