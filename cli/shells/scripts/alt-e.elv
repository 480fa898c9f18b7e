
# callboard: Alt-e puts the command that the words of the line stand for in their place

set edit:insert:binding[Alt-e] = {
  var typed = $edit:current-command
  if (not-eq $typed '') {
    try {
      tmp E:CALLBOARD_SHELL = elvish
      set edit:current-command = (str:join "\n" [(e:callboard -e -- $typed </dev/null 2>/dev/null | from-lines)])
    } catch why {
      edit:notify 'callboard: no command could be had for this line'
    }
  }
}
