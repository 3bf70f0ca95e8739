package term

import (
	"strings"
	"unicode/utf8"
)

// columnGap is the white space between two columns.
const columnGap = "  "

// minFlexible is what remains at least of a column that is shortened to fit.
const minFlexible = 12

// Cell is one field of a table.
type Cell struct {
	Text  string
	Style Style
}

// Text makes a plain cell.
func Text(s string) Cell { return Cell{Text: s} }

// Column is the heading of a column and how it may be laid out.
type Column struct {
	Title string
	// Right aligns numbers.
	Right bool
	// Flexible columns are shortened when the table does not fit the terminal.
	Flexible bool
}

// Table is rows of cells under headings.
type Table struct {
	Columns []Column
	rows    [][]Cell
}

// Row adds a row; an empty cell is shown as "-", so that columns can be cut apart by scripts.
func (t *Table) Row(cells ...Cell) {
	row := make([]Cell, len(t.Columns))
	for i := range row {
		if i < len(cells) {
			row[i] = Cell{Text: Clean(cells[i].Text), Style: cells[i].Style}
		}
		if row[i].Text == "" {
			row[i] = Cell{Text: "-", Style: Dim}
		}
	}
	t.rows = append(t.rows, row)
}

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Write prints the table. Only on a terminal are columns shortened to fit it.
func (t *Table) Write(o *Output) error {
	widths := t.widths(o.Width())
	w := new(strings.Builder)
	head := make([]Cell, len(t.Columns))
	for i, c := range t.Columns {
		head[i] = Cell{Text: c.Title, Style: Strong}
	}
	t.line(w, o, head, widths)
	for _, row := range t.rows {
		t.line(w, o, row, widths)
	}
	_, err := o.Write([]byte(w.String()))
	return err
}

func (t *Table) line(w *strings.Builder, o *Output, row []Cell, widths []int) {
	last := len(row) - 1
	for i, cell := range row {
		text := shorten(cell.Text, widths[i])
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
		if t.Columns[i].Right {
			w.WriteString(pad)
		}
		w.WriteString(o.Style(cell.Style, text))
		if i == last {
			break
		}
		if !t.Columns[i].Right {
			w.WriteString(pad)
		}
		w.WriteString(columnGap)
	}
	w.WriteByte('\n')
}

// widths are those of the widest cells, with flexible columns shortened to
// limit; 0 means no limit.
func (t *Table) widths(limit int) []int {
	widths := make([]int, len(t.Columns))
	total := (len(widths) - 1) * len(columnGap)
	for i, c := range t.Columns {
		widths[i] = utf8.RuneCountInString(c.Title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].Text))
		}
		total += widths[i]
	}
	if limit <= 0 {
		return widths
	}
	// The rightmost flexible column gives first: it holds the longest prose.
	for i := len(widths) - 1; i >= 0 && total > limit; i-- {
		if !t.Columns[i].Flexible {
			continue
		}
		floor := min(widths[i], max(minFlexible, utf8.RuneCountInString(t.Columns[i].Title)))
		cut := min(widths[i]-floor, total-limit)
		widths[i] -= cut
		total -= cut
	}
	return widths
}

// shorten cuts text to a number of columns and shows that it did.
func shorten(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	runes := []rune(text)
	return string(runes[:width-1]) + "…"
}
